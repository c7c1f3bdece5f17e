# Adds up what the tests of one run did. Input: ctest's JUnit file. A GoogleTest binary counts by the
# cases in its own XML beside that file, so that one of which a filter wants nothing counts nothing; one
# that left none (it crashed, or ran out of time), and every test that is no GoogleTest binary, counts
# as one case. Prints each reason for which cases were skipped, with the number of cases in each
# program; then the failed cases, each with the text of its failures; and as the last line "N passed,
# N failed, N skipped". Exit status 1 unless some passed and none failed.

BEGIN { most_lines = 20 }  # of the text of one failed case, or of the output of one failed program

function attribute(line, name) {
  if (!match(line, "[ \t]" name "=\"[^\"]*\"")) return ""
  return substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
}

function plain(text) {
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text); gsub(/&amp;/, "\\&", text)
  return text
}

function add_skipped(reason) {
  skipped++
  if (!(reason in skips)) reasons[++reason_count] = reason
  skips[reason]++
  if (!((reason, program) in skips_of)) programs[reason] = programs[reason] SUBSEP program
  skips_of[reason, program]++
}

# Appends the lines of `text` to the report of failures, indented.
function add_failure_text(text,    lines, count, i) {
  sub(/\n+$/, "", text)
  count = split(text, lines, "\n")
  for (i = 1; i <= count && i <= most_lines; i++) failures = failures "    " lines[i] "\n"
  if (count > most_lines) failures = failures "    ... " count - most_lines " more lines\n"
}

function add_failed(what) {
  failed++
  failures = failures "FAILED  " program ": " what "\n"
}

function end_case() {
  if (name == "") return
  if (bad) { add_failed(name); add_failure_text(failure_text) }
  else if (skip) add_skipped(reason == "" ? "no reason is given" : reason)
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
      bad = 0; reason = ""; failure_text = ""
      skip = attribute(line, "result") == "skipped"
    } else if (line ~ /^ *<failure /) {
      bad = 1
      line = attribute(line, "message")
      gsub(/&#x0A;/, "\n", line)
      failure_text = failure_text plain(line) "\n"
    } else if (line ~ /^ *<skipped /) {
      reason = attribute(line, "message")
      reason = substr(reason, index(reason, "&#x0A;") + 6)  # after the file and line
      sub(/&#x0A;.*/, "", reason)
      reason = plain(reason)
    }
  }
  end_case()
  close(file)
  return cases
}

# Counts the program before this line, where it was skipped and printed no reason.
function settle_skipped() {
  if (not_run) add_skipped("not run")
  not_run = 0
}

FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder) }

/<testcase / {
  settle_skipped()
  program = attribute($0, "name")
  status = attribute($0, "status")
  before = failed
  cases = read_cases(folder program ".xml")
  outside = status == "fail" && failed == before
  if (outside) {
    add_failed(cases > 0 ? "failed outside its cases" : "failed, crashed or ran out of time without naming a case")
  } else if (cases < 0 && status == "run") {
    passed++
  }
  not_run = cases < 0 && (status == "notrun" || status == "disabled")
  next
}

# What a program printed: the last lines of it tell most where no case has a failure of its own.
/<system-out>/ { in_output = 1; line_count = 0; sub(/.*<system-out>/, "") }
in_output {
  ended = sub(/<\/system-out>.*/, "")
  output[++line_count] = plain($0)
  if (!ended) next
  in_output = 0
  if (not_run) {  # a script says why, in a line of its own
    reason = "not run"
    for (i = 1; i <= line_count; i++) if (output[i] ~ /^skipped: /) reason = substr(output[i], 10)
    add_skipped(reason)
    not_run = 0
  }
  if (!outside) next
  while (line_count > 0 && output[line_count] == "") line_count--
  for (i = line_count > most_lines ? line_count - most_lines + 1 : 1; i <= line_count; i++)
    failures = failures "    " output[i] "\n"
}

END {
  settle_skipped()
  for (i = 1; i <= reason_count; i++) {
    reason = reasons[i]
    count = split(substr(programs[reason], 2), names, SUBSEP)
    of = ""
    for (k = 1; k <= count; k++) of = of (k > 1 ? ", " : "") skips_of[reason, names[k]] " of " names[k]
    print "skipped " of ": " reason
  }
  printf "%s", failures
  printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
  exit !(failed == 0 && passed > 0)
}
