#!/usr/bin/perl
# Plays a hub with Hugging Face's protocol for tests/helm/cluster. Serves the files of FOLDER as the model NAME, but only for
# requests that carry TOKEN. Written in Perl, the only language with sockets that every image based on Debian has.
#
#   perl hub.pl FOLDER NAME TOKEN PORT FILES_HOST
#
# The weights lie on another host, FILES_HOST, to which no client may send the token. The first answer with weights breaks
# off in its middle. Prints one line per request: method, host, target, range, status.
use strict;
use warnings;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_SNDTIMEO SO_RCVTIMEO);

my ($folder, $name, $token, $port, $files_host) = @ARGV;
die "perl hub.pl FOLDER NAME TOKEN PORT FILES_HOST\n" unless defined $files_host;
my $commit = '0123456789abcdef0123456789abcdef01234567';
$| = 1;
$SIG{PIPE} = 'IGNORE';
$SIG{TERM} = sub { exit 0 };  # process 1 of a container ignores signals without a handler

sub first_word_of { my ($command) = @_; my $out = `$command`; die "$command: $?\n" if $?; return (split ' ', $out)[0]; }

my %files;
opendir my $listing, $folder or die "$folder: $!\n";
for my $file (sort grep { -f "$folder/$_" } readdir $listing) {
  my $size = -s "$folder/$file";
  $files{$file} = {size => $size, sha1 => first_word_of("{ printf 'blob $size\\0'; cat '$folder/$file'; } | sha1sum")};
  $files{$file}{sha256} = first_word_of("sha256sum '$folder/$file'") if $file =~ /\.(safetensors|gguf)$/;
}
my $list = sprintf '{"sha":"%s","siblings":[%s]}', $commit, join ',', map {
  my $f = $files{$_};
  sprintf '{"rfilename":"%s","size":%d,"blobId":"%s"%s}', $_, $f->{size}, $f->{sha1},
    $f->{sha256} ? sprintf(',"lfs":{"sha256":"%s","size":%d}', $f->{sha256}, $f->{size}) : '';
} sort keys %files;

my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 16, ReuseAddr => 1) or die "port $port: $!\n";
print "serving $name at port ", $server->sockport, "\n";
my $cuts = 1;

sub bytes_of { my ($file, $from) = @_; open my $in, '<:raw', "$folder/$file" or die "$file: $!\n"; seek $in, $from, 0; local $/; return <$in>; }

# Returns the text without its percent-encoding.
sub decoded { my ($text) = @_; $text =~ s/%([0-9A-F]{2})/chr hex $1/gie; return $text; }

# Returns status, header lines and body. If the connection is to be cut, also returns how much of the body is sent first.
sub answer {
  my ($host, $target, $range, $authorization) = @_;
  if ($host eq $files_host) {
    return (400, '', "the token was shown to another host\n") if $authorization;
    my ($file) = decoded($target) =~ m{^/weights/(.+)$};
    return (404, '', '') unless defined $file && $files{$file};
    if ($range =~ /^bytes=(\d+)-$/ && $1 < $files{$file}{size}) {
      return (206, sprintf("Content-Range: bytes %d-%d/%d\r\n", $1, $files{$file}{size} - 1, $files{$file}{size}), bytes_of($file, $1));
    }
    return (200, '', bytes_of($file, 0), $cuts-- > 0 ? int($files{$file}{size} / 3) : undef);
  }
  return (401, "X-Error-Message: no token, or a wrong one\r\n", '') unless $authorization eq "Bearer $token";
  return (200, "Content-Type: application/json\r\n", $list) if $target =~ m{^/api/models/\Q$name\E/revision/(main|$commit)\?blobs=true$};
  if ($target =~ m{^/\Q$name\E/resolve/$commit/(.+)$} && $files{decoded($1)}) {
    my ($encoded, $file) = ($1, decoded($1));
    return (200, '', bytes_of($file, 0)) unless $files{$file}{sha256};
    return (302, "Location: http://$files_host/weights/$encoded\r\nX-Linked-Etag: \"$files{$file}{sha256}\"\r\n", '');
  }
  return (404, "X-Error-Code: EntryNotFound\r\n", '');
}

while (my $client = $server->accept) {
  # A peer that vanished must not block the only thread: its connection is closed after ten seconds without progress.
  setsockopt $client, SOL_SOCKET, $_, pack('l!l!', 10, 0) for SO_SNDTIMEO, SO_RCVTIMEO;
  my ($method, $target) = split ' ', scalar(<$client>) // '';
  my %header = (host => '', range => '', authorization => '');
  while (defined(my $line = <$client>)) {
    last if $line =~ /^\r?\n$/;
    $header{lc $1} = $2 if $line =~ /^([^:]+):\s*(.*?)\r?\n$/;
  }
  if (defined $target) {
    my ($status, $lines, $body, $cut) = answer($header{host}, $target, $header{range}, $header{authorization});
    print $client "HTTP/1.1 $status Answer\r\nConnection: close\r\nContent-Length: ", length($body), "\r\n$lines\r\n";
    print $client defined $cut ? substr($body, 0, $cut) : $body;
    print join(' ', $method, $header{host}, $target, $header{range} || '-', $status, defined $cut ? "cut after $cut" : ()), "\n";
  }
  close $client;
}
