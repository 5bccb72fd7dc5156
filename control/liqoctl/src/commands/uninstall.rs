//! `liqoctl uninstall`: refuses while something would be lost, removes the release and, if
//! asked, all that Helm leaves. It ends, whatever the remote clusters do.

mod leftovers;
mod purge;

use crate::cluster::Cluster;
use crate::global::Global;
use crate::helm::{Helm, RELEASE, Release};
use crate::progress::{self, begin};
use crate::prompt;
use crate::wait::Deadline;
use anyhow::{Result, bail};
use clap::Args;
use std::time::Duration;

/// How long it may take if nobody says otherwise; all steps together stay below a minute.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How long helm waits for the release's objects to be gone.
const HELM_TIMEOUT: Duration = Duration::from_secs(20);

/// What to remove.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Remove the CRDs, the namespaces of peers and Liqo's own, too.
    #[arg(long)]
    purge: bool,

    /// Remove although there are peers: their traffic ends.
    #[arg(long)]
    force: bool,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that says what is left, and the command that removes it.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let cluster = Cluster::local(global).await?;
    let namespace = cluster.find_installation().await?.map_or_else(
        || cluster.expected_namespace().to_owned(),
        |installation| installation.namespace,
    );
    if !global.skip_confirm {
        let what = if options.purge {
            "Liqo, its CRDs and its namespaces"
        } else {
            "Liqo"
        };
        let place = cluster.place();
        prompt::confirm(&format!("This removes {what} from {place}. Go on?")).await?;
    }

    let checking = begin("", "Running pre-uninstall checks");
    let found = leftovers::find(&cluster).await?;
    if found.is_empty() {
        checking.done("Pre-uninstall checks passed");
    } else if options.force {
        drop(checking);
        progress::warn(format_args!("removed all the same (--force):{found}"));
    } else {
        bail!("Pre-uninstall checks failed: you should:{found}\n(--force removes all the same)");
    }

    if options.purge {
        purge::mark(&cluster, &namespace).await?;
    }
    let uninstalling = begin("", "Uninstalling Liqo");
    // Nothing is refused in the name of programs that are gone.
    purge::remove_policies(&cluster).await?;
    if Release::find(&cluster, &namespace).await?.is_some() {
        let helm = Helm::find(global, &namespace)?;
        let timeout = crate::parse::show_duration(deadline.within(HELM_TIMEOUT).left());
        let arguments = ["uninstall", RELEASE, "--wait", "--timeout", &timeout];
        let result = helm.run(&arguments.map(Into::into)).await;
        if let Err(error) = result {
            // What is left goes with the namespace; without a purge it is a failure.
            if !options.purge {
                return Err(error);
            }
            progress::warn(format_args!("{error:#}; the purge goes on"));
        }
        uninstalling.done("Liqo uninstalled");
    } else {
        uninstalling.done("Liqo already uninstalled");
    }
    purge::remove_tenant_bindings(&cluster).await?;
    if options.purge {
        purge::run(&cluster, &namespace, deadline).await?;
    }
    Ok(())
}
