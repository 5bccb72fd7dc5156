//! Removes Liqo and the clusters, and checks that nothing is left.

use super::peering;
use crate::console;
use crate::demo::claims::Verdict;
use crate::demo::clusters::tools::Tools;
use crate::demo::clusters::{MILAN, ROME};
use crate::demo::report::Claim;
use crate::shell::Shell;
use anyhow::Result;
use std::time::Instant;

/// Removes Liqo and the clusters, and returns the verdict on the claim `clean-up`. Skips the
/// removal of Liqo unless `is_installed` is true.
///
/// # Errors
///
/// Returns an error if the removal was interrupted.
pub(in crate::demo::clusters) fn clean_up(
    shell: &mut Shell,
    tools: &Tools,
    is_installed: bool,
) -> Result<Claim> {
    console::step("clean-up: nothing is left");
    let start = Instant::now();
    let verdict = if is_installed {
        uninstall(shell, tools)
    } else {
        Ok(Verdict::new(true, "the clusters are removed"))
    };
    shell.run(tools.laboratory(&["down", ROME, MILAN]))?;

    let verdict = verdict.unwrap_or_else(|error| Verdict::new(false, format!("{error:#}")));
    if verdict.pass {
        console::done(&verdict.measured, start.elapsed());
    } else {
        console::failed(&verdict.measured, start.elapsed());
    }
    Ok(Claim {
        name: "clean-up",
        pass: verdict.pass,
        measured: verdict.measured,
    })
}

fn uninstall(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let [rome, milan] = [ROME, MILAN].map(|name| tools.kubeconfig(shell, name));
    let (rome, milan) = (rome?, milan?);
    // An earlier step has failed.
    if !peering::left(shell, tools)?.is_empty() {
        peering::unpeer(shell, tools)?;
    }
    let mut left = Vec::new();
    for (name, kubeconfig) in [(ROME, &rome), (MILAN, &milan)] {
        let words = ["uninstall", "--purge", "--skip-confirm", "--kubeconfig"];
        tools.show(shell, tools.liqoctl(&[&words[..], &[kubeconfig]].concat()))?;
        let kinds = "crd,clusterroles,clusterrolebindings,namespaces";
        let objects = tools.kubectl(shell, name, &["get", kinds, "-o", "name"])?;
        left.extend(
            objects
                .lines()
                .filter(|it| it.contains("liqo"))
                .map(str::to_owned),
        );
        for node in ["control-plane", "worker"] {
            let node = format!("{name}-{node}");
            let links = tools.laboratory(&["exec", &node, "ip", "-o", "link"]);
            let links = shell.output(links)?;
            let links = String::from_utf8_lossy(&links.stdout).into_owned();
            left.extend(
                links
                    .lines()
                    .filter(|it| it.contains("liqo"))
                    .map(str::to_owned),
            );
        }
    }

    Ok(Verdict::new(
        left.is_empty(),
        if left.is_empty() {
            "no kind, role, namespace or device is left, and the clusters are removed".to_owned()
        } else {
            format!("left: {}", left.join(", "))
        },
    ))
}
