# A formula for Homebrew on Linux. tools/release fills in version, address and checksum. From a file:
#   brew install --formula ./quorate.rb
class Quorate < Formula
  desc "Replicated key-value store and lock service that speaks the Redis protocol"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on arch: :x86_64
  depends_on :linux

  def install
    bin.install "quorate"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/quorate.bash" => "quorate"
    zsh_completion.install "completions/_quorate"
    fish_completion.install "completions/quorate.fish"
    prefix.install "LICENSE", "NOTICE", "THIRD-PARTY.txt", "README.md", "CHANGELOG.md"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/quorate --version")
  end
end
