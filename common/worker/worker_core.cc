#include "common/worker/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace baton {
namespace {

// Removals that the log of names keeps. A reader that misses more gets all names anew.
size_t RemovalsKept(int blocks) { return static_cast<size_t>(std::max(blocks, 1024)); }

PrefixCache::Options CacheOptions(const PrefixCacheSettings& settings, KvPlane* plane,
                                  NameLog* log) {
  PrefixCache::Options options{.enabled = settings.enabled,
                               .content_hash = nullptr,
                               .log = log,
                               .hash_key = settings.hash_key};
#ifdef BATON_CHECK_CACHED_KV
  const bool check = true;
#else
  const bool check = settings.check_content;
#endif
  if (check && plane->options().device == nullptr) {
    options.content_hash = [plane](BlockId block) {
      const KvLayout& layout = plane->options().layout;
      return Hash64(plane->pool() + layout.BlockOffset(block), layout.BlockBytes());
    };
  }
  return options;
}

}  // namespace

bool MakesKvSuspect(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsDataLoss(status);
}

WorkerCore::WorkerCore(Parts parts)
    : context_(parts.context),
      vocab_(parts.model->config().vocab),
      rope_(parts.model->config().rope),
      layout_(parts.plane->options().layout),
      on_kv_thread_(std::move(parts.on_kv_thread)),
      engine_(std::move(parts.engine)),
      scope_{.secret = parts.cache.secret,
             .model_fingerprint = parts.cache.model_fingerprint,
             .numerics_id = parts.plane->options().numerics_id,
             .layout_fingerprint = layout_.Fingerprint(),
             .adapter = "",
             .rope_reach = 0,
             .salt = ""},
      pool_(parts.plane->options().blocks, parts.plane->generations(),
            parts.reuse_last_freed ? BlockPool::Reuse::kLastFreed : BlockPool::Reuse::kContiguous),
      name_log_(RemovalsKept(pool_.total_blocks())),
      cache_(&pool_, layout_.block_tokens, CacheOptions(parts.cache, parts.plane, &name_log_)) {
  engine_->set_pulse(parts.pulse);
  ReportLoad({});
}

absl::StatusOr<WorkerCore::Parts> WorkerCore::MakeParts(
    int context, bool reuse_last_freed, PrefixCacheSettings cache, Pulse* pulse, const Model* model,
    Backend* backend, KvPlane* plane, KvThread on_kv_thread,
    absl::FunctionRef<StepSize(int context)> max) {
  const KvPlane::Options& kv = plane->options();
  const int model_context = model->config().context;
  if (context == 0) context = model_context;
  if (context < 2 || context > model_context) {
    return absl::InvalidArgumentError(
        absl::StrCat("context is ", context, "; it takes 2 to the model's ", model_context));
  }
  if (kv.layout.BlocksFor(context) > kv.blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a context of ", context, " tokens needs ", kv.layout.BlocksFor(context),
                     " KV blocks of ", kv.layout.block_tokens, " tokens (", kv.layout.BlockBytes(),
                     " bytes each); the pool has ", kv.blocks));
  }
  ASSIGN_OR_RETURN(auto engine,
                   Engine::Create(model, backend, {plane->pool(), kv.layout}, max(context)));
  return Parts{context, reuse_last_freed,        std::move(cache), pulse, model,
               plane,   std::move(on_kv_thread), std::move(engine)};
}

absl::Status WorkerCore::CheckTokens(const std::vector<TokenId>& tokens,
                                     int original_prompt_tokens) const {
  if (original_prompt_tokens < 1 || static_cast<size_t>(original_prompt_tokens) > tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("original_prompt_tokens is ", original_prompt_tokens, " of ", tokens.size()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", i, " is ", tokens[i], "; the vocabulary has ", vocab_));
    }
  }
  return absl::OkStatus();
}

PrefixChain WorkerCore::ChainFor(absl::Span<const TokenId> tokens, int original_prompt_tokens,
                                 const std::string& salt, CacheUse use) const {
  if (!cache_.enabled() || use == CacheUse::kOff) return {};
  BlockNamer namer;
  PrefixScope scope = scope_;
  scope.rope_reach = RopeReach(rope_, original_prompt_tokens, static_cast<int>(tokens.size()));
  scope.salt = salt;
  PrefixChain chain(namer.Root(scope), layout_.block_tokens);
  chain.Extend(tokens, &namer);
  return chain;
}

std::vector<BlockId> WorkerCore::FindPrefix(const PrefixChain& chain,
                                            absl::Span<const TokenId> tokens, CacheUse use) {
  if (use == CacheUse::kNoHits || use == CacheUse::kOff) return {};
  if (use == CacheUse::kOn)
    return cache_.Pin(chain, tokens, MaxHit(static_cast<int>(tokens.size())));
  const std::vector<BlockId> found =
      cache_.Pin(chain, tokens, static_cast<int>(chain.names().size()));
  cache_.Forget(found);
  cache_.Release(found);
  return {};
}

int WorkerCore::CachedTokens(const PrefixChain& chain, int tokens, CacheUse use) const {
  if (use != CacheUse::kOn || chain.empty()) return 0;
  int blocks = 0;
  while (blocks < MaxHit(tokens) && cache_.Has(chain.names()[blocks])) ++blocks;
  return blocks * layout_.block_tokens;
}

absl::Status WorkerCore::Forget(std::vector<TokenId> tokens, int original_prompt_tokens,
                                const std::string& salt) {
  RETURN_IF_ERROR(CheckTokens(tokens, original_prompt_tokens));
  PrefixChain chain = ChainFor(tokens, original_prompt_tokens, salt, CacheUse::kRefresh);
  SendForget({std::move(tokens), std::move(chain)});
  return absl::OkStatus();
}

void WorkerCore::ReleaseBlocks(absl::Span<const BlockId> blocks, const absl::Status& status) {
  if (MakesKvSuspect(status)) cache_.Forget(blocks);
  cache_.Release(blocks);
}

absl::StatusOr<WorkerCore::JobId> WorkerCore::TakePlace(int max_waiting, size_t tokens,
                                                        const char* worker,
                                                        absl::FunctionRef<std::string()> full) {
  MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError(absl::StrCat(worker, " is draining"));
  if (waiting_ >= max_waiting) return absl::ResourceExhaustedError(full());
  ++waiting_;
  waiting_tokens_ += static_cast<int64_t>(tokens);
  ++jobs_;
  return ++last_id_;
}

void WorkerCore::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
}

void WorkerCore::Ended() {
  MutexLock lock(&mutex_);
  if (--jobs_ == 0) no_jobs_.SignalAll();
}

int WorkerCore::jobs() const {
  MutexLock lock(&mutex_);
  return jobs_;
}

bool WorkerCore::AwaitNoJobs(absl::Duration limit) const {
  const absl::Time until = SteadyNow() + limit;
  MutexLock lock(&mutex_);
  while (jobs_ > 0) {
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    no_jobs_.WaitFor(&mutex_, left);
  }
  return true;
}

WorkerLoad WorkerCore::Load() const {
  MutexLock lock(&mutex_);
  WorkerLoad load = load_;
  load.waiting += waiting_;
  load.waiting_tokens = waiting_tokens_;
  load.draining = draining_;
  return load;
}

void WorkerCore::ReportLoad(WorkerLoad load) {
  load.free_blocks = cache_.available();
  load.cached_blocks = cache_.evictable_blocks();
  load.total_blocks = pool_.total_blocks();
  load.steps = engine_->steps();
  MutexLock lock(&mutex_);
  load_ = load;
}

}  // namespace baton
