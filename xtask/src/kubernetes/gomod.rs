//! Reads the versions that a `go.mod` pins.

/// Returns the version of `module` that a `go.mod` file requires. `text` is the content of the
/// file.
///
/// The go command writes one requirement per line: `require path version`, or `path version` in a
/// block. Lines of `replace` directives contain an arrow and are skipped.
pub(super) fn required<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let line = line.split("//").next().unwrap_or_default().trim();
        let mut words = line.strip_prefix("require ").unwrap_or(line).split(' ');
        let (path, version, end) = (words.next()?, words.next()?, words.next());

        (path == module && version.starts_with('v') && end.is_none()).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
module liqo-lab/x // v0.0.0

go 1.26.0

replace (
\tk8s.io/api => k8s.io/api v0.35.4
\tk8s.io/cli v0.1.0 => k8s.io/cli v0.2.0
)

tool go.etcd.io/etcd/server/v3

require k8s.io/kubernetes v1.35.4

require (
\tgo.etcd.io/etcd/server/v3 v3.6.16 // indirect
\tk8s.io/api v0.34.0
)
";

    #[test]
    fn requirements_are_found_alone_and_in_blocks() {
        assert_eq!(required(TEXT, "k8s.io/kubernetes"), Some("v1.35.4"));
        assert_eq!(required(TEXT, "go.etcd.io/etcd/server/v3"), Some("v3.6.16"));
    }

    #[test]
    fn a_replacement_is_no_requirement() {
        assert_eq!(required(TEXT, "k8s.io/api"), Some("v0.34.0"));
        assert_eq!(required(TEXT, "k8s.io/cli"), None);
    }

    #[test]
    fn a_module_without_requirement_has_no_version() {
        assert_eq!(required(TEXT, "liqo-lab/x"), None);
        assert_eq!(required(TEXT, "k8s.io"), None);
    }
}
