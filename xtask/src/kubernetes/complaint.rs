//! What to do about what the go command complains of.

/// How many lines of its output are shown: those at the end tell the reason.
const LINES_MAX: usize = 12;

/// Returns the part of the go command's output that a person needs to see.
///
/// It also names every module that it fetches, which are hundreds.
pub(super) fn shown(output: &str) -> String {
    let lines: Vec<_> = output
        .lines()
        .filter(|line| !line.starts_with("go: downloading ") && !line.trim().is_empty())
        .collect();
    let first = lines.len().saturating_sub(LINES_MAX);

    lines[first..].join("\n    ")
}

/// Returns the cure for the first known complaint in `output`.
///
/// The order matters: with a full disk, anything else can be a consequence.
pub(super) fn cure(output: &str) -> &'static str {
    CURES
        .iter()
        .find(|(words, _)| words.iter().any(|word| output.contains(word)))
        .map_or(ANY, |(_, cure)| cure)
}

const ANY: &str = "run the same command again: what was fetched and compiled is kept";

const CURES: [(&[&str], &str); 5] = [
    (
        &["no space left on device", "disk quota exceeded"],
        "the disk is full: make room, then run the same command again; what was fetched and compiled is kept",
    ),
    (
        &["SECURITY ERROR", "checksum mismatch"],
        "what the module proxy sent is not what the checksums in tests/kubernetes/go say: nothing of it was used; is GOPROXY set to another proxy?",
    ),
    (
        &[
            "missing go.sum entry",
            "updates to go.mod needed",
            "go: inconsistent",
        ],
        "the pinned modules do not fit together: in that folder of tests/kubernetes/go, `go mod tidy` (with -modfile for Kubernetes) completes .mod and .sum",
    ),
    (
        &["signal: killed", "cannot allocate memory", "out of memory"],
        "there was not enough memory; linking Kubernetes takes about 3 GB: end what else is running, then run the same command again",
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
        "the Go module proxy could not be reached: run the same command again, what was fetched is kept; behind a proxy, HTTPS_PROXY or GOPROXY tell the way",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_are_fetched_are_no_complaint() {
        let output = "go: downloading a v1\ngo: downloading b v2\n\ncannot find package c\n";

        assert_eq!(shown(output), "cannot find package c");
    }

    #[test]
    fn only_the_end_of_a_long_output_is_shown() {
        let output: String = (1..=100).map(|line| format!("line {line}\n")).collect();

        let shown = shown(&output);

        assert!(shown.starts_with("line 89\n") && shown.ends_with("line 100"));
    }

    #[test]
    fn a_silent_proxy_means_to_try_again() {
        let output = "go: k8s.io/api@v0.35.4: Get \"https://proxy.golang.org/x\": dial tcp 1.2.3.4:443: i/o timeout";

        assert!(cure(output).contains("run the same command again, what was fetched is kept"));
    }

    #[test]
    fn a_full_disk_comes_before_its_consequences() {
        let output = "write: no space left on device\nunexpected EOF\n";

        assert!(cure(output).contains("make room"));
    }

    #[test]
    fn wrong_checksums_are_not_to_be_tried_again() {
        let output = "verifying x@v1: checksum mismatch\n\nSECURITY ERROR\n";

        assert!(!cure(output).contains("again"));
    }

    #[test]
    fn anything_else_is_worth_another_try() {
        assert_eq!(cure("x.go:1:1: undefined: y"), ANY);
    }
}
