#include "tests/goodput/report/page_style.h"

namespace baton {

const char kPageStyle[] = R"(*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);line-height:1.5;font-size:15px;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1140px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}
h2{font-size:1.3rem;line-height:1.3;margin:48px 0 8px;padding-top:16px;border-top:1px solid var(--grid)}
h3{font-size:1.02rem;margin:28px 0 8px}
p{margin:6px 0}
a{color:var(--s0)}
.soft{color:var(--soft)}
.verdict{background:var(--surface);border:1px solid var(--grid);border-left:5px solid var(--s0);
border-radius:8px;padding:12px 16px;margin:12px 0}
.verdict p:first-child{font-size:1.15rem;font-weight:600;line-height:1.4}
.badge{display:inline-block;border:1px solid currentColor;border-radius:999px;padding:0 10px;
margin:0 6px 4px 0;font-size:.82rem;font-weight:600;white-space:nowrap}
.bad{color:var(--target)}
.warn{color:var(--warn)}
.fine{color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:12px 0}
.tile,.plots svg,.table{background:var(--surface);border:1px solid var(--grid);border-radius:8px}
.tile{padding:10px 14px}
.tile .figure{font-size:1.55rem;font-weight:650;line-height:1.25;font-variant-numeric:tabular-nums}
.tile .name{font-size:.85rem;color:var(--soft)}
.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:12px;
align-items:start;margin:12px 0}
.plots svg{display:block;width:100%;height:auto}
.table{overflow-x:auto;margin:10px 0}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;white-space:nowrap}
th{font-weight:600;color:var(--soft);border-bottom:1px solid var(--grid)}
tr+tr td{border-top:1px solid var(--grid)}
th:first-child,td:first-child,td.text{text-align:left}
td:first-child{white-space:normal;min-width:11em}
td.text{white-space:normal;min-width:16em}
td.heat{background:color-mix(in srgb,var(--s1) calc(var(--share)*65%),transparent)}
td.best{font-weight:700}
details{margin:10px 0}
summary{cursor:pointer;font-weight:600;padding:4px 0}
ul{margin:6px 0;padding-left:22px}
li{margin:2px 0;overflow-wrap:anywhere}
@media (max-width:480px){main{padding:16px 10px 48px}h1{font-size:1.4rem}
th,td{padding:5px 8px}.verdict{padding:10px 12px}}
@media print{body{background:none}h2{break-before:page}.plots svg,.table{break-inside:avoid}}
)";

}  // namespace baton
