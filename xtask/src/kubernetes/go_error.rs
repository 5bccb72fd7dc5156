//! Excerpts of the go command's error output, and remedies for known errors.

/// Maximum number of lines in an excerpt. The cause of a failure is in the last lines of the
/// output.
const LINES_MAX: usize = 12;

/// Returns the last lines of the go command's output. Lines about downloaded modules are skipped,
/// because the output may contain hundreds of these lines.
pub(super) fn excerpt(output: &str) -> String {
    let lines: Vec<_> = output
        .lines()
        .filter(|line| !line.starts_with("go: downloading ") && !line.trim().is_empty())
        .collect();
    let first = lines.len().saturating_sub(LINES_MAX);

    lines[first..].join("\n    ")
}

/// Returns the remedy for the known error that comes first in [`REMEDIES`].
///
/// A full disk comes first, because it can cause all other errors.
pub(super) fn remedy(output: &str) -> &'static str {
    REMEDIES
        .iter()
        .find(|(words, _)| words.iter().any(|word| output.contains(word)))
        .map_or(ANY, |(_, remedy)| remedy)
}

const ANY: &str = "run the same command again: downloads and compiled packages are kept";

const REMEDIES: [(&[&str], &str); 5] = [
    (
        &["no space left on device", "disk quota exceeded"],
        "the disk is full: free some space, then run the same command again; downloads and compiled packages are kept",
    ),
    (
        &["SECURITY ERROR", "checksum mismatch"],
        "a download does not match its checksum in tests/kubernetes/go and was not used: is GOPROXY set to another proxy?",
    ),
    (
        &[
            "missing go.sum entry",
            "updates to go.mod needed",
            "go: inconsistent",
        ],
        "the pinned modules are inconsistent: run `go mod tidy` in that folder of tests/kubernetes/go (with -modfile for Kubernetes)",
    ),
    (
        &["signal: killed", "cannot allocate memory", "out of memory"],
        "out of memory; linking Kubernetes takes about 3 GB: stop other programs, then run the same command again",
    ),
    (
        &[
            "dial tcp",
            "i/o timeout",
            "TLS handshake timeout",
            "connection refused",
            "connection reset",
            "unexpected EOF",
            "no such host",
            "Bad Gateway",
            "Service Unavailable",
            "Gateway Timeout",
            "Too Many Requests",
        ],
        "the Go module proxy is unreachable: run the same command again, downloads are kept; behind a proxy, set HTTPS_PROXY or GOPROXY",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_no_downloads() {
        let output = "go: downloading a v1\ngo: downloading b v2\n\ncannot find package c\n";

        assert_eq!(excerpt(output), "cannot find package c");
    }

    #[test]
    fn only_the_end_of_a_long_output_is_shown() {
        let output: String = (1..=100).map(|line| format!("line {line}\n")).collect();

        let excerpt = excerpt(&output);

        assert!(excerpt.starts_with("line 89\n") && excerpt.ends_with("line 100"));
    }

    #[test]
    fn the_remedy_for_an_unreachable_proxy_is_a_retry() {
        let output = "go: k8s.io/api@v0.35.4: Get \"https://proxy.golang.org/x\": dial tcp 1.2.3.4:443: i/o timeout";

        assert!(remedy(output).contains("run the same command again, downloads are kept"));
    }

    #[test]
    fn a_full_disk_comes_before_its_consequences() {
        let output = "write: no space left on device\nunexpected EOF\n";

        assert!(remedy(output).contains("free some space"));
    }

    #[test]
    fn a_retry_is_no_remedy_for_wrong_checksums() {
        let output = "verifying x@v1: checksum mismatch\n\nSECURITY ERROR\n";

        assert!(!remedy(output).contains("again"));
    }

    #[test]
    fn the_remedy_for_an_unknown_error_is_a_retry() {
        assert_eq!(remedy("x.go:1:1: undefined: y"), ANY);
    }
}
