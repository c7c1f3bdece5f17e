# Adds up what the tests of one run did. Input: ctest's JUnit file. A GoogleTest binary counts by the
# cases in its own XML beside that file, so that one of which a filter wants nothing counts nothing; one
# that left none (it crashed, or ran out of time), and every test that is no GoogleTest binary, counts
# as one case. Prints the reasons of skipped cases, the names of failed ones, and as the last line "N
# passed, N failed, N skipped". Exit status 1 unless some passed and none failed.

function attribute(line, name) {
  if (!match(line, "[ \t]" name "=\"[^\"]*\"")) return ""
  return substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
}

function plain(text) {
  gsub(/&#x0A;.*/, "", text)
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text); gsub(/&amp;/, "\\&", text)
  return text
}

function end_case() {
  if (name == "") return
  if (bad) { failed++; failures[++failure_count] = program ": " name }
  else if (skip) { skipped++; reasons[++reason_count] = program ": " name (reason == "" ? "" : ": " reason) }
  else passed++
  name = ""
}

# One program's own XML; the number of cases in it, -1 where there is none.
function read_cases(file,    line, cases) {
  cases = -1; name = ""
  while ((getline line < file) > 0) {
    if (cases < 0) cases = 0
    if (line ~ /^ *<testcase /) {
      end_case()
      if (attribute(line, "status") != "run") continue
      cases++
      name = attribute(line, "classname") "." attribute(line, "name")
      bad = 0; reason = ""
      skip = attribute(line, "result") == "skipped"
    } else if (line ~ /^ *<failure /) {
      bad = 1
    } else if (line ~ /^ *<skipped /) {
      reason = attribute(line, "message")
      reason = plain(substr(reason, index(reason, "&#x0A;") + 6))  # after the file and line
    }
  }
  end_case()
  close(file)
  return cases
}

FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder) }

/<testcase / {
  program = attribute($0, "name")
  status = attribute($0, "status")
  before = failed
  cases = read_cases(folder program ".xml")
  if (status == "fail" && failed == before) {
    failed++
    failures[++failure_count] = program (cases > 0 ? ": failed outside its cases" : ": crashed, ran out of time or could not run")
  } else if (cases < 0 && status == "run") {
    passed++
  } else if (cases < 0 && (status == "notrun" || status == "disabled")) {
    skipped++
    reasons[++reason_count] = program ": not run"
  }
}

END {
  for (i = 1; i <= reason_count; i++) print "skipped " reasons[i]
  for (i = 1; i <= failure_count; i++) print "FAILED  " failures[i]
  printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
  exit !(failed == 0 && passed > 0)
}
