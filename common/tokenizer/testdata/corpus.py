"""The texts that the goldens cover. Run make_goldens.py to write corpus.jsonl from them.

An entry is a text, or (text, n) for a text that is repeated n times.
"""

ENGLISH = [
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs!",
    "A computer is a machine that follows instructions. It reads a number from its memory, adds another "
    "number to it, and writes the answer back. It does this a billion times in the time you need to blink.",
    "Why is the sky blue? Sunlight holds all colours; the air scatters the blue ones most, so blue light "
    "comes from everywhere. In the evening the light has a longer way to go, and what is left is red.",
    "I'm sure they've said we'll go, but he'd rather it weren't so; she's here, isn't she? Don't!",
    "I'M SURE THEY'VE SAID WE'LL GO, BUT HE'D RATHER IT WEREN'T SO; SHE'S HERE, ISN'T SHE? DON'T!",
    "I'm I'M i'M I'Ve we'Re o'Clock rock'n'roll 'tis 'Twas ''s '''ll 'LL' x'S y'T z'd' 'M 'ſ it'ſ",
    "it’s “quoted” – with dashes — and… ellipses; ‘single’ ′prime″ «guillemets» ‹single›",
    "Dear Sir or Madam,\n\nThank you for your letter of 3 May 2024.\r\n\r\nYours,\r\n\tN. N.\n\n\n",
    "e-mail: someone@example.org, see https://example.org/a/b?c=d&e=f#g or call +44 (0)20 7946 0123.",
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "camelCaseWords PascalCaseWords snake_case_words SCREAMING_SNAKE kebab-case-words mixed123numbers4five",
    "Hello Hello hello HELLO hELLO  Hello   Hello\tHello\nHello",
]
CODE = [
    "def fib(n: int) -> int:\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    a, b = 0, 1\n"
    "    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n\nif __name__ == '__main__':\n    print([fib(i) for i in range(10)])\n",
    "#include <vector>\n\ntemplate <typename T>\nT Sum(const std::vector<T>& values) {\n  T sum{};\n"
    "  for (const T& value : values) sum += value;  // left to right\n  return sum;\n}\n",
    "fn main() {\n    let mut total: u64 = 0;\n    for (i, x) in [1u64, 2, 3].iter().enumerate() {\n"
    "        total += x * i as u64;\n    }\n    println!(\"{total:>8}\");\n}\n",
    "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tch := make(chan int, 4)\n\tgo func() { defer close(ch); ch <- 42 }()\n"
    "\tfor v := range ch {\n\t\tfmt.Printf(\"%d\\n\", v)\n\t}\n}\n",
    "const f = async ({ url, ...rest }) => {\n  const r = await fetch(`${url}?q=${encodeURIComponent(rest.q ?? '')}`);\n"
    "  return r.ok ? r.json() : Promise.reject(new Error(r.status));\n};\n",
    "<!DOCTYPE html>\n<html lang=\"en\">\n  <head><title>A &amp; B</title></head>\n  <body class='x'><p>Hi&nbsp;there<br/></p></body>\n</html>",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.name LIKE '%o''b%' GROUP BY 1 HAVING n > 10;",
    "#!/bin/sh\nset -eu\nfor f in *.txt; do\n  grep -c -- \"$1\" \"$f\" | sed 's/^/  /' >> \"${OUT:-/tmp/out}\" 2>&1 || true\ndone\n",
    "all: a.o b.o\n\t$(CC) -o $@ $^\n\n.PHONY: clean\nclean:\n\trm -f *.o\n",
    "{\"a\": [1, 2.5e-3, true, null], \"b\": {\"c\": \"\\u00e9\\n\"}, \"d\": \"<|endoftext|>\"}",
    "\\begin{equation}\n  E = mc^2 + \\sum_{i=0}^{\\infty} \\frac{\\alpha_i}{i!} \\quad \\forall x \\in \\mathbb{R}\n\\end{equation}",
    "x = 0xDEADBEEF; y = 1_000_000; z = 6.02214076e23; w = .5; v = 1.; i++; --j; a<<=2; b>>>=3; c!==d; e=>f; g::h;",
    "        deeply indented\n            more\n                most\n\t\t\ttabs\n \t \tmixed\n",
    "@@ -1,4 +1,4 @@\n-old line\n+new line\n context\n\\ No newline at end of file",
]
SCRIPTS = [
    "敏捷的棕色狐狸跳过了懒狗。计算机是一种按照指令工作的机器,它每秒可以执行数十亿次运算!",
    "「吾輩は猫である。名前はまだ無い。」カタカナとひらがなと漢字、そして半角カナと全角ABC123。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 컴퓨터는 기계입니다.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. الكمبيوتر آلة، أليس كذلك؟ ١٢٣٤٥",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם עֲלֵיכֶם 123",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। १२३४ क्षत्रिय",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓๔๕",
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Съешь ещё этих мягких французских булок.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. ᾳ ῼ ΐ",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით. ᲗᲑ",
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர். ௧௨௩",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Ta\u0302\u0301t ca\u0309 mo\u0323i ngu\u031bo\u031b\u0300i sinh ra \u0111e\u0302\u0300u \u0111u\u031bo\u031b\u0323c tu\u031b\u0323 do.",
    "Zażółć gęślą jaźń; Příliš žluťoučký kůň; Fahrvergnügen, Straße, ẞ; señor, naïve café, Ångström, Þórr, ǅ ǆ",
    "Zaz\u0307o\u0301l\u0301c\u0301 cafe\u0301 A\u030angstro\u0308m \u212bngstr\u00f6m \u2126hm K=\u212a se\u00f1or sen\u0303or",
    "មនុស្សទាំងអស់កើតមកមានសេរីភាព ၁၂၃ လူတိုင်းသည် བོད་སྐད་ འགྲོ་བ་མིའི་རིགས་ ሰው ሁሉ ነጻ ᎠᏓᏅᏙ ᏣᎳᎩ ꮳꮃꭹ",
    "ⲁⲛⲟⲕ 𐌰𐌹𐌽𐍃 𐤀𐤁𐤂 𒀀𒁀 𓀀𓂀𓃰 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ℵ ℝ ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≠ ∅ ∑∏∫√∞",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ a\u180eb \u180e\u180e ߒߞߏ ꦗꦮ ᮞᮥᮔ᮪ᮓ 𞤀𞤣𞤤𞤢𞤥 ꯃꯤꯇꯩ ⵜⵉⴼⵉⵏⴰⵖ",
    "𠀀𠀁𪚥 𰀀 㐀㐁 \U00031350\U00031351 \U0002ebf0\U0002ebf1 \u1c89\u1c8a \U00010d40\U00010d41 \U0001e5d0 \U00016d40\U00016d70",
]
MARKS = [
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞",
    "e\u0301 e\u0301\u0301 e\u0323\u0301 e\u0301\u0323 \u1e69 s\u0323\u0307 s\u0307\u0323 \u0301leading \u0301\u0302 \u0344 \u0958 \u0929 \u0b94",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \uac00\u11a8 \uac01\u11a8 \uac00\u11a7 \uac00\u11a7\u11a8 \u1100\uac00 \u1161 \u11a8",
    "\u0061\u05ae\u1dfa\u0300\u0315\u0062 a\u0315\u07fd\u0300b a\u0315\u0301\u1ac5\u0300b \U00011935\U00011930 \U0001d15e \u2adc \ufb1d \uf900 \U0002f800",
    "\u0f71\u0f72\u0f74 \u0f73 \u0f81 \u0cc6\u0cc2\u0cd5 \u0dd9\u0dcf\u0dca \u1b05\u1b35 \u30ab\u3099\u30cf\u309a \u3099",
]
EMOJI = [
    "😀😃😄 😂🤣 ❤️ ❤ ☺️ ☺ ✌🏽 👍🏿👍🏻 🫠🫡🫶🏾 \U0001fae8\U0001fadf\U0001fae9",
    "👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🏴‍☠️ 🧑🏻‍❤️‍💋‍🧑🏿 🐻‍❄️ 😮‍💨",
    "🇩🇪🇫🇷🇯🇵🇺🇳 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣2️⃣#️⃣*️⃣ ©️®™️ ⁉️ 🅰️🆎 Ⓜ️ ⓐ🄰🅐",
    "Good morning☀️!I'm fine🙂,thanks👍.100%💯",
]
SPACES = [
    "", " ", "  ", "   ", "    ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \n ", "  \n  \n  ",
    "a", " a", "a ", " a ", "  a", "a  ", "a  b", "a   b", "a \n b", "a\n\nb", "a \n\n b", "a\t\tb", "a \t b", "a\r\nb", "a\rb",
    "x\u00a0y\u00a0\u00a0z \u00a0 w", "\u3000全角\u3000\u3000スペース\u3000", "\u2028\u2029 \u2028x\u2029y\u0085z\u0085\u0085 \u0085\n",
    "\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000end",
    "\u200b\u200c\u200d\u2060\ufeffzero\u200bwidth\ufeff \u180e x", "\x0b\x0c \x0b\x0c\x1c\x1d\x1e\x1f \x1c",
    "trailing spaces   \nnext   \n   \n\n  last  ", ("\n", 100), (" ", 257), ("\t \n", 60), (" a", 150), ("  ", 40),
]
NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890",
    "3.14159 -2.71828 1e10 1,234,567.89 50% $9.99 €20 £30 ¥400 1/2 ½ ⅔ ¾ 10:30 2024-02-29T23:59:60Z 192.168.0.1",
    "٠١٢٣٤٥٦٧٨٩ ०१२३ ๐๑๒๓ 一二三 ①②③ ⅠⅡⅢⅣⅧ ⅷ x²+y³=z⁴ H₂O ₁₂₃ 1٢3४5 𝟏𝟐𝟑 ㊿ 〇",
    "a1b22c333d4444e55555 1st 2nd 3rd 4th 0x1F 1'000'000 007 v1.2.3-rc4",
]
ODD = [
    "".join(map(chr, range(0x20))), "".join(map(chr, range(0x7f, 0x100))), "\x00", "a\x00b\x00\x00c", "\x1b[31mred\x1b[0m \x07\x08",
    "\ufffd \ufffd\ufffd a\ufffdb", "\ufffe\uffff \U0001fffe \U0010ffff \ue000\uf8ff \U000f0000 \ufdd0",
    "\u202eright to left override\u202c \u2066isolate\u2069 \u200f\u200e \u061c", "\U000e0001\U000e0020\U000e007f \u034f \u00ad soft\u00adhyphen",
    "`~!@#$%^&*()-_=+[{]}\\|;:'\",<.>/? ¡¢£¤¥¦§¨©ª«¬®¯°±´µ¶·¸º»¿×÷", "!!! ??? ... ---- ==== ____ //// **** ;;;; \n!!!\n\n???\r\n\r\n...\n \n---",
    "...\n\n  ...\r\n!\n?", "a.b.c/d\\e|f", "ßẞ ſ ﬀﬁﬂﬃﬄﬅﬆ ŉ ǰ İ ı İstanbul ΐ", "Ġ Ċ ĉ Ā ā ł Ń Ġthe é Ã© Â", "ăĂ ġĠ ŀŁłŃ",
]
SPECIAL = [
    "<|endoftext|>", "Hello<|endoftext|>world", " <|endoftext|> \n<|endoftext|><|endoftext|>", "<|endoftext", "<|endoftext|", "|>", "<|<|endoftext|>|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<think>\nLet's see.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<think><think></think", "a<think>b", "<s>x</s><s>",
    "<|reserved_special_token_0|><|reserved_special_token_1|><|reserved_special_token_10|>", "<|IM_START|> <|im_start |>",
    "[MASK] a [MASK] b  [MASK]  c[MASK]d \n [MASK] \t e", "x  [L]  y [L]z", "x  [R]  y[R] z", "word wordy sword word's (word) word_ 0word word\u0301 word",
    "caf\u00e9 cafe\u0301 CAFE\u0301", "<ab><abc><abcd> <abc <ab>c><a<ab>", "\u3000[MASK]\u3000\u00a0[L]\u2003[R]\u2028", "[R][L] [R] [L] [R]  [L]",
]
SENTENCEPIECE = [
    "▁", "▁▁", "▁the", "a▁b", " ▁ ▁", "▁Hello▁world", "<0x41>", "<0x41><0xE4>", "<unk>", "a<unk>b", "<s>", "</s>", " <s> x </s> ",
    "of the of  the of the", " of the", "the end of the day", "人", "人人 人", "人a工b智", "\u2603\u2603", "x\u2603y", "[INST] Hi [/INST]", "[INST]Hi[/INST] there",
    "<|user|>\nHi<|end|>\n<|assistant|>\n", "<|end|> \n x", "x <|end|>", "<｜begin▁of▁sentence｜>Hi<｜EOT｜>", "<start_of_turn>user\nHi<end_of_turn>\n",
    "１２３ ﬁ ² Å ㍿ ①", "a\u00a0b\u3000c", "Hello   world", "   three", "three   ",
]
LONG = [
    ("a", 700), ("ab", 400), ("😀", 120), ("e\u0301", 150), ("人", 300), ("ก", 300), ("1", 200), ("12a", 100), ("-", 300), ("'s", 80), ("Aa", 120), ("\u0301", 60),
    ("<|im_start|>", 12), ("the ", 100), ("\U00031350", 30), ("ab\n", 60), ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 12),
]

CORPUS = ENGLISH + CODE + SCRIPTS + MARKS + EMOJI + SPACES + NUMBERS + ODD + SPECIAL + SENTENCEPIECE + LONG


def expand(entry):
    return entry if isinstance(entry, str) else entry[0] * entry[1]
