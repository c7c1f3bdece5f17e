#include "tests/goodput/load/schedule.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/arrivals.h"
#include "tests/goodput/traces/length_distribution.h"

namespace baton {
namespace {

constexpr double kMaxRateError = 0.1;  // Max relative error of a window's rate without a remark.
constexpr double kMax = LengthDistribution::kLongest;

absl::Status CheckWorkload(const WorkloadSpec& workload) {
  if (!workload.trace.empty() && !workload.prompts.empty())
    return absl::InvalidArgumentError("--trace and --prompts exclude each other; give one of them");
  if (workload.arrivals.kind == ArrivalKind::kTrace && workload.trace.empty())
    return absl::InvalidArgumentError("--arrivals=trace needs --trace");
  if (workload.prompts.empty() && workload.trace.empty() && workload.prompt_tokens.empty())
    return absl::InvalidArgumentError(
        "the length of prompts is not given; set --prompt-tokens, such as --prompt-tokens=64, or "
        "--prompts or --trace");
  if (!workload.prompts.empty() && !workload.prompt_tokens.empty())
    return absl::InvalidArgumentError(
        "--prompt-tokens with --prompts, whose prompts have their own lengths; give one of them");
  for (const double scale : {workload.prompt_scale, workload.output_scale}) {
    if (!(scale >= 1e-4 && scale <= 1e4)) {
      return absl::InvalidArgumentError(
          absl::StrCat("lengths can't be scaled by ", scale, "; it takes 0.0001 to 10000"));
    }
  }
  for (const auto& [what, length, scale] :
       {std::make_tuple("prompt", &workload.prompt_tokens, workload.prompt_scale),
        std::make_tuple("output", &workload.output_tokens, workload.output_scale)}) {
    if (length->empty() || scale == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", what, "-scale=", scale, " scales the trace's lengths, which --", what,
                     "-tokens=", *length, " replaces; give one of them"));
  }
  return CheckArrivals(workload.arrivals);
}

uint32_t Scaled(uint32_t tokens, double scale) {
  return static_cast<uint32_t>(std::clamp(std::round(tokens * scale), 1.0, kMax));
}

// Draws the lengths of the requests in order, and cuts them to the model's context.
class LengthSource {
 public:
  // All arguments must outlive the returned object.
  static absl::StatusOr<LengthSource> Of(const LoadSpec& spec, uint32_t context_tokens,
                                         const TextTokens& tokens_of, Schedule* schedule) {
    LengthSource source(spec, context_tokens, tokens_of, schedule);
    const WorkloadSpec& workload = spec.workload;
    for (auto [text, lengths] : {std::pair{&workload.prompt_tokens, &source.prompt_},
                                 std::pair{&workload.output_tokens, &source.output_}}) {
      if (text->empty()) continue;
      ASSIGN_OR_RETURN(LengthDistribution parsed, LengthDistribution::Parse(*text));
      *lengths = std::move(parsed);
    }
    if (workload.trace.empty() && !source.output_.has_value() &&
        std::any_of(schedule->prompts.begin(), schedule->prompts.end(),
                    [](const FilePrompt& prompt) { return prompt.output_tokens == 0; })) {
      return absl::InvalidArgumentError(
          "the file of --prompts does not give the output tokens of every prompt; set "
          "--output-tokens too");
    }
    if (workload.trace.empty() && schedule->prompts.empty() && !source.output_.has_value())
      return absl::InvalidArgumentError(
          "the length of answers is not given; set --output-tokens, such as --output-tokens=32");
    return source;
  }

  // Sets the lengths of `request`, whose `row` must be set. Counts the lengths that it has to cut,
  // so that a remark in the result can tell. Not counted are requests after the measured time,
  // which may never be sent (`in_tail`).
  absl::Status Fill(bool in_tail, PlannedRequest* request) {
    const uint32_t prompt = prompt_.has_value() ? prompt_->Draw(&random_prompt_) : 0;
    const uint32_t output = output_.has_value() ? output_->Draw(&random_output_) : 0;
    if (!schedule_.trace.rows.empty()) {
      const TraceRow& row = schedule_.trace.rows[request->row];
      request->prompt_tokens = Scaled(row.prompt_tokens, workload_.prompt_scale);
      request->output_tokens = Scaled(row.output_tokens, workload_.output_scale);
    } else if (!schedule_.prompts.empty()) {
      RETURN_IF_ERROR(Count(request->row));
      request->prompt_tokens = schedule_.prompts[request->row].tokens;
      request->output_tokens = schedule_.prompts[request->row].output_tokens;
    }
    if (prompt > 0) request->prompt_tokens = prompt;
    if (output > 0) request->output_tokens = output;
    const uint32_t max_output = std::max(1u, context_tokens_ / 2);
    if (request->output_tokens > max_output) {
      request->output_tokens = max_output;
      cut_outputs_ += !in_tail;
    }
    const uint32_t max_prompt = std::max(1u, context_tokens_ - request->output_tokens);
    if (request->prompt_tokens > max_prompt) {
      request->prompt_tokens = max_prompt;
      cut_prompts_ += !in_tail;
    }
    return absl::OkStatus();
  }

  void Remark(std::vector<std::string>* remarks) const {
    if (cut_prompts_ + cut_outputs_ == 0) return;
    remarks->push_back(absl::StrCat(cut_prompts_, " prompts and ", cut_outputs_,
                                    " answers were cut to the model's context of ", context_tokens_,
                                    " tokens"));
  }

 private:
  LengthSource(const LoadSpec& spec, uint32_t context_tokens, const TextTokens& tokens_of,
               Schedule* schedule)
      : workload_(spec.workload),
        schedule_(*schedule),
        tokens_of_(tokens_of),
        context_tokens_(context_tokens),
        random_prompt_(spec.seed, RandomStream::kLengths, 0),
        random_output_(spec.seed, RandomStream::kLengths, 1) {}

  // Counts the tokens of a text before the load, so that the length is known even if the router
  // refuses the text.
  absl::Status Count(uint32_t row) {
    FilePrompt& prompt = schedule_.prompts[row];
    if (prompt.tokens > 0 || !countable_ || tokens_of_ == nullptr) return absl::OkStatus();
    absl::StatusOr<std::vector<int32_t>> ids = tokens_of_(prompt.text);
    if (absl::IsUnimplemented(ids.status())) {
      countable_ = false;
      schedule_.remarks.push_back(absl::StrCat(
          "the server does not count tokens: texts are not cut to the context, those that it "
          "refuses count as the shortest, and answers of a ShareGPT file are as long as a quarter "
          "of their bytes (",
          ids.status().message(), ")"));
      return absl::OkStatus();
    }
    const auto uncounted = [&](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat("prompt ", row + 1, " of ", workload_.prompts,
                                                      " has no tokens: ", status.message()));
    };
    if (!ids.ok()) return uncounted(ids.status());
    prompt.tokens = static_cast<uint32_t>(ids->size());
    if (prompt.tokens > context_tokens_ / 2) prompt.token_ids = *std::move(ids);
    if (prompt.answer.empty() || output_.has_value()) return absl::OkStatus();
    absl::StatusOr<std::vector<int32_t>> answer = tokens_of_(prompt.answer);
    if (!answer.ok()) return uncounted(answer.status());
    prompt.output_tokens = static_cast<uint32_t>(std::max<size_t>(1, answer->size()));
    return absl::OkStatus();
  }

  const WorkloadSpec& workload_;
  Schedule& schedule_;
  const TextTokens& tokens_of_;
  bool countable_ = true;
  uint32_t context_tokens_;
  std::optional<LengthDistribution> prompt_, output_;
  RandomStream random_prompt_, random_output_;
  uint32_t cut_prompts_ = 0, cut_outputs_ = 0;
};

// Adds a remark if the rate in the window is far from the rate asked for, so that a reader does not
// confuse the two rates. Only traces and on-off arrivals differ that much by chance.
void RemarkRate(const ArrivalSpec& asked, Schedule* schedule) {
  const bool may_differ = asked.kind == ArrivalKind::kTrace || asked.kind == ArrivalKind::kOnOff;
  if (!may_differ || asked.rate == 0) return;
  const double offered = (schedule->end_measured - schedule->first_measured) /
                         (schedule->window_end_s - schedule->window_begin_s);
  if (std::abs(offered / asked.rate - 1) <= kMaxRateError) return;
  schedule->remarks.push_back(absl::StrFormat(
      "the window offers %.4g requests/s, not the %.4g that were asked for", offered, asked.rate));
}

double WholeMicroseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(const LoadSpec& spec, uint32_t context_tokens,
                                      const TextTokens& tokens_of) {
  if (context_tokens < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a context of ", context_tokens, " tokens leaves no tokens for an answer"));
  }
  RETURN_IF_ERROR(CheckWorkload(spec.workload));
  if (spec.duration <= absl::ZeroDuration() || spec.warmup < absl::ZeroDuration() ||
      spec.warmup + spec.duration > absl::Hours(24 * 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a warm-up of ", absl::FormatDuration(spec.warmup), " and a window of ",
                     absl::FormatDuration(spec.duration),
                     ": together they must be more than 0, and at most 30 days"));
  }
  Schedule schedule;
  if (!spec.workload.trace.empty()) {
    ASSIGN_OR_RETURN(Trace trace, ReadTrace(spec.workload.trace));
    schedule.trace = std::move(trace);
    schedule.block_tokens = Scaled(Trace::kBlockTokens, spec.workload.prompt_scale);
  }
  if (!spec.workload.prompts.empty()) {
    ASSIGN_OR_RETURN(std::vector<FilePrompt> prompts, ReadPromptFile(spec.workload.prompts));
    schedule.prompts = std::move(prompts);
  }
  ASSIGN_OR_RETURN(LengthSource lengths,
                   LengthSource::Of(spec, context_tokens, tokens_of, &schedule));

  schedule.window_begin_s = absl::ToDoubleSeconds(spec.warmup);
  schedule.window_end_s = schedule.window_begin_s + absl::ToDoubleSeconds(spec.duration);
  const double tail_s = spec.tail ? absl::ToDoubleSeconds(spec.request_timeout) : 0;
  const size_t rows = std::max(schedule.trace.rows.size(), schedule.prompts.size());
  const ArrivalSpec& asked = spec.workload.arrivals;
  double window_s = absl::ToDoubleSeconds(spec.duration);
  if (asked.kind == ArrivalKind::kTrace && asked.rate > 0 && spec.max_requests > 0)
    window_s = std::min(window_s, spec.max_requests / asked.rate);
  const size_t first_row = rows > 0 ? FirstRow(spec.seed, rows) : 0;
  Arrivals arrivals(asked, &schedule.trace, spec.seed,
                    {.warmup_s = schedule.window_begin_s, .window_s = window_s});
  bool capped = false;
  while (true) {
    const double at_s = WholeMicroseconds(arrivals.Next());
    const auto index = static_cast<uint32_t>(schedule.requests.size());
    // Requests that share a time are all in the window or all after it.
    if (!capped && spec.max_requests > 0 && at_s >= schedule.window_begin_s &&
        index - schedule.first_measured >= spec.max_requests &&
        at_s > schedule.requests.back().at_s) {
      schedule.window_end_s = std::min(schedule.window_end_s, at_s);
      capped = true;
    }
    if (at_s >= schedule.window_end_s + tail_s) break;
    if (schedule.requests.size() == Schedule::kMaxRequests) {
      return absl::InvalidArgumentError(
          absl::StrCat("the load would have more than ", Schedule::kMaxRequests,
                       " requests by second ", at_s, " of ", schedule.window_end_s + tail_s,
                       ", its tail included: set a lower rate, or a shorter load"));
    }
    PlannedRequest request{.at_s = at_s};
    if (rows > 0) {
      request.row = static_cast<uint32_t>((first_row + index) % rows);
      request.pass = static_cast<uint32_t>(index / rows);
    }
    RETURN_IF_ERROR(lengths.Fill(at_s >= schedule.window_end_s, &request));
    schedule.requests.push_back(request);
    if (at_s < schedule.window_begin_s) schedule.first_measured = index + 1;
    if (at_s < schedule.window_end_s) schedule.end_measured = index + 1;
  }
  if (schedule.end_measured <= schedule.first_measured) {
    return absl::OutOfRangeError(
        absl::StrCat("no request falls into the window of ", absl::FormatDuration(spec.duration),
                     " after ", absl::FormatDuration(spec.warmup),
                     " of warm-up: set a higher rate, a longer window or another seed"));
  }
  lengths.Remark(&schedule.remarks);
  RemarkRate(asked, &schedule);
  if (!schedule.trace.rows.empty() && schedule.end_measured > rows) {
    schedule.remarks.push_back(absl::StrCat("the trace of ", rows,
                                            " requests was begun again; shared blocks of one pass "
                                            "are not those of another"));
  }
  return schedule;
}

}  // namespace baton
