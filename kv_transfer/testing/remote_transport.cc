#include "kv_transfer/testing/remote_transport.h"

#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kv_transfer/transport/byte_packer.h"

namespace baton {
namespace {

enum class Call : uint8_t {
  kAllocate,
  kAddress,
  kConnect,
  kDisconnect,
  kLink,
  kSendNote,
  kProgress,
  kWait,
};

BytePacker Question(Call call) {
  BytePacker out;
  out.Put(call);
  return out;
}

void PutStatus(BytePacker* out, const absl::Status& status) {
  out->Put<uint32_t>(static_cast<uint32_t>(status.code()));
  out->PutString(status.message());
}
absl::Status GetStatus(ByteUnpacker* in) {
  const auto code = static_cast<absl::StatusCode>(in->Get<uint32_t>());
  return absl::Status(code, in->GetString());
}

}  // namespace

RemoteTransport::~RemoteTransport() = default;

std::string RemoteTransport::Ask(const std::string& question) const {
  child_.Send(question);
  return child_.Receive();
}

absl::StatusOr<TransportMemory> RemoteTransport::Allocate(size_t bytes, bool pool) {
  BytePacker out = Question(Call::kAllocate);
  out.Put<uint64_t>(bytes);
  out.Put<bool>(pool);
  const std::string answer = Ask(out.Take());
  ByteUnpacker in(answer);
  RETURN_IF_ERROR(GetStatus(&in));
  TransportMemory memory;
  memory.bytes = bytes;
  memory.key = std::string(in.GetString());
  memory.on_device = in.Get<bool>();
  BATON_CHECK(in.at_end()) << "the other process is gone";
  return memory;
}

std::string RemoteTransport::address() const { return Ask(Question(Call::kAddress).Take()); }

absl::StatusOr<PeerId> RemoteTransport::Connect(absl::string_view address) {
  BytePacker out = Question(Call::kConnect);
  out.PutString(address);
  const std::string answer = Ask(out.Take());
  ByteUnpacker in(answer);
  RETURN_IF_ERROR(GetStatus(&in));
  return in.Get<PeerId>();
}

void RemoteTransport::Disconnect(PeerId peer) {
  BytePacker out = Question(Call::kDisconnect);
  out.Put(peer);
  Ask(out.Take());
}

absl::StatusOr<std::string> RemoteTransport::Link(PeerId peer) {
  BytePacker out = Question(Call::kLink);
  out.Put(peer);
  const std::string answer = Ask(out.Take());
  ByteUnpacker in(answer);
  RETURN_IF_ERROR(GetStatus(&in));
  return std::string(in.GetString());
}

void RemoteTransport::Read(ReadOperation) { BATON_CHECK(false) << "a read by a remote transport"; }

absl::Status RemoteTransport::SendNote(PeerId peer, absl::string_view note) {
  BytePacker out = Question(Call::kSendNote);
  out.Put(peer);
  out.PutString(note);
  const std::string answer = Ask(out.Take());
  ByteUnpacker in(answer);
  return GetStatus(&in);
}

bool RemoteTransport::Progress() {
  const std::string answer = Ask(Question(Call::kProgress).Take());
  ByteUnpacker in(answer);
  const bool moved = in.Get<bool>();
  while (in.ok() && !in.at_end()) {
    const absl::string_view note = in.GetString();
    if (in.ok() && handler_) handler_(note);
  }
  return moved;
}

void RemoteTransport::Wait(absl::Duration timeout) {
  BytePacker out = Question(Call::kWait);
  out.Put<int64_t>(absl::ToInt64Microseconds(timeout));
  Ask(out.Take());
}

void ServeTransport(Transport* transport,
                    const std::function<void(const TransportMemory&, const std::string&)>& fill) {
  std::vector<std::string> notes;
  transport->SetNoteHandler([&](absl::string_view note) { notes.emplace_back(note); });
  std::string question;
  while (ReceiveMessage(stdin, &question)) {
    ByteUnpacker in(question);
    BytePacker out;
    switch (in.Get<Call>()) {
      case Call::kAllocate: {
        const uint64_t bytes = in.Get<uint64_t>();
        const auto memory =
            in.Get<bool>() ? transport->AllocatePool(bytes) : transport->Allocate(bytes);
        PutStatus(&out, memory.status());
        if (!memory.ok()) break;
        std::string content(bytes, '\0');
        for (size_t i = 0; i < bytes; ++i) {
          content[i] = static_cast<char>(RemoteTransport::ByteAt(i));
        }
        fill(*memory, content);
        out.PutString(memory->key);
        out.Put<bool>(memory->on_device);
        break;
      }
      case Call::kAddress:
        out.PutFixed(transport->address());
        break;
      case Call::kConnect: {
        const auto peer = transport->Connect(in.GetString());
        PutStatus(&out, peer.status());
        if (peer.ok()) out.Put(*peer);
        break;
      }
      case Call::kDisconnect:
        transport->Disconnect(in.Get<PeerId>());
        break;
      case Call::kLink: {
        const auto link = transport->Link(in.Get<PeerId>());
        PutStatus(&out, link.status());
        if (link.ok()) out.PutString(*link);
        break;
      }
      case Call::kSendNote: {
        const PeerId peer = in.Get<PeerId>();
        PutStatus(&out, transport->SendNote(peer, in.GetString()));
        break;
      }
      case Call::kProgress: {
        out.Put<bool>(transport->Progress());
        for (const std::string& note : notes) out.PutString(note);
        notes.clear();
        break;
      }
      case Call::kWait:
        transport->Wait(absl::Microseconds(in.Get<int64_t>()));
        break;
    }
    SendMessage(stdout, out.Take());
  }
  transport->SetNoteHandler(nullptr);
}

}  // namespace baton
