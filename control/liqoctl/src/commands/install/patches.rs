//! `--patch-daemonsets`: keeps the pods of DaemonSets from before the installation off virtual nodes.

use super::args::Options;
use crate::cluster::Cluster;
use crate::daemon_sets::{self, Exposed};
use crate::global::Global;
use crate::progress::{self, begin};
use crate::prompt;
use anyhow::{Result, bail};

/// Returns the DaemonSets whose patch the user has confirmed; none without the flag.
///
/// # Errors
///
/// Returns an error if the answer is no, or if the API server fails.
pub(super) async fn confirm(
    global: &Global,
    options: &Options,
    cluster: &Cluster,
) -> Result<Vec<Exposed>> {
    if !options.patch_daemonsets {
        return Ok(Vec::new());
    }
    let found = daemon_sets::find(cluster).await?;
    if found.is_empty() {
        progress::info("No DaemonSet needs a patch (--patch-daemonsets)");
        return Ok(found);
    }
    let text = describe(&found);
    if options.dry_run {
        progress::info(format_args!("Nothing was patched (--dry-run): {text}"));
        return Ok(Vec::new());
    }
    if !global.skip_confirm {
        prompt::confirm(&format!("{text}.\nContinue?")).await?;
    }
    Ok(found)
}

fn describe(found: &[Exposed]) -> String {
    let places: Vec<String> = found.iter().map(Exposed::place).collect();
    format!(
        "these DaemonSets get a node affinity that keeps their pods off virtual nodes, which restarts their pods on all nodes: {}",
        places.join(", ")
    )
}

/// Patches the DaemonSets, and reports each. One that fails does not stop the others.
///
/// # Errors
///
/// Returns those that were not patched, with the reasons.
pub(super) async fn apply(cluster: &Cluster, confirmed: &[Exposed]) -> Result<()> {
    let mut failed = Vec::new();
    for exposed in confirmed {
        let place = exposed.place();
        let patching = begin("", format_args!("Patching DaemonSet {place}"));
        match daemon_sets::patch(cluster, exposed).await {
            Ok(true) => patching.done(format_args!("DaemonSet {place} patched")),
            Ok(false) => patching.done(format_args!("DaemonSet {place} needs no patch any more")),
            Err(error) => failed.push(format!("{place} ({error:#})")),
        }
    }
    if !failed.is_empty() {
        bail!(
            "Liqo is installed, but these DaemonSets were not patched: {}; run the command again",
            failed.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::take_lines;
    use fake_apiserver::{ApiServer, Front, Reply};
    use serde_json::json;

    fn path(name: &str) -> String {
        format!("/apis/apps/v1/namespaces/logging/daemonsets/{name}")
    }

    fn rome() -> (ApiServer, Front, Cluster) {
        let server = ApiServer::start();
        for name in ["a", "b"] {
            let template = json!({"metadata": {}, "spec": {
                "containers": [], "tolerations": [{"operator": "Exists"}],
            }});
            server.put(
                &path(name),
                json!({
                    "apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": {"name": name, "namespace": "logging"},
                    "spec": {"selector": {}, "template": template},
                }),
            );
        }
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");
        (server, front, cluster)
    }

    fn options(patch_daemonsets: bool, dry_run: bool) -> Options {
        Options {
            patch_daemonsets,
            dry_run,
            ..Options::default()
        }
    }

    fn confirmed() -> Global {
        Global {
            skip_confirm: true,
            ..Global::default()
        }
    }

    fn is_patched(server: &ApiServer, name: &str) -> bool {
        let stored = server.get(&path(name)).unwrap().to_string();
        stored.contains("DoesNotExist")
    }

    #[tokio::test]
    async fn without_the_flag_or_with_a_dry_run_nothing_is_patched() {
        let (server, front, cluster) = rome();
        for options in [options(false, false), options(true, true)] {
            let found = confirm(&confirmed(), &options, &cluster).await.unwrap();

            assert_eq!(found, []);
        }
        assert_eq!(front.count(|head| head.method != "GET"), 0);
        assert!(!is_patched(&server, "a"));
        let lines = take_lines().join("\n");
        assert!(lines.contains("logging/a, logging/b"), "{lines}");
    }

    #[tokio::test]
    async fn each_daemon_set_is_reported_and_a_failure_does_not_stop_the_others() {
        let (server, front, cluster) = rome();
        let options = options(true, false);
        let found = confirm(&confirmed(), &options, &cluster).await.unwrap();
        assert_eq!(found.len(), 2);
        front.set(
            |head| match head.method == "PATCH" && head.target.contains("/a?") {
                true => Reply::status(403, "Forbidden", "daemonsets is forbidden"),
                false => Reply::Forward,
            },
        );

        let error = apply(&cluster, &found).await.unwrap_err().to_string();

        assert!(
            error.contains("not patched: logging/a (failed to"),
            "{error}"
        );
        assert!(error.contains("daemonsets is forbidden"), "{error}");
        assert!(is_patched(&server, "b") && !is_patched(&server, "a"));
        let lines = take_lines().join("\n");
        assert!(lines.contains("DaemonSet logging/b patched"), "{lines}");
    }
}
