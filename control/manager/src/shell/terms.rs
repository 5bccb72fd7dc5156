//! Terms of leadership: the loop runs while the Lease is held, and anew when it is held again.
//!
//! An API server that is away ends a term, not the process: nothing is written meanwhile, and the
//! next term begins with what the API server lists then, as a new process would.

use super::lease::Holder;
use super::{Shell, State, installation};
use crate::election::Timing;
use crate::metrics::Metrics;
use crate::plan::Planner;
use kube::Client;
use std::io;
use std::sync::Arc;

/// One manager, which acts or stands by.
pub(crate) struct Manager {
    /// That of a term begins as this one's copy, without objects.
    planner: Planner,
    client: Client,
    identity: String,
    /// `None` if it acts without being chosen.
    holder: Option<Holder>,
    metrics: Metrics,
    state: Arc<State>,
}

impl Manager {
    /// Creates a manager that acts while it holds the Lease, or always without `election`.
    pub(crate) fn new(
        planner: Planner,
        client: Client,
        identity: String,
        election: Option<Timing>,
        metrics: Metrics,
        state: Arc<State>,
    ) -> Self {
        let holder = election.map(|timing| {
            let namespace = &planner.settings.namespace;
            let state = Arc::clone(&state);
            Holder::new(client.clone(), namespace, &identity, timing, state)
        });

        Self {
            planner,
            client,
            identity,
            holder,
            metrics,
            state,
        }
    }

    /// Manages until `stop` completes, with the name of a signal.
    ///
    /// # Errors
    ///
    /// Returns an error if signals cannot be had, or if all watches have ended, which no watch does.
    pub(crate) async fn run(
        mut self,
        stop: impl Future<Output = io::Result<&'static str>>,
    ) -> anyhow::Result<()> {
        let signal = tokio::select! {
            () = self.terms() => anyhow::bail!("the watches have ended"),
            signal = stop => signal?,
        };
        tracing::info!(signal, "stopping");
        self.metrics.lead(false);
        if let Some(holder) = &mut self.holder {
            holder.release().await;
        }

        Ok(())
    }

    /// Stands by and acts in turn.
    async fn terms(&mut self) {
        loop {
            if let Some(holder) = &mut self.holder {
                tracing::info!(identity = self.identity, "waiting for the Lease");
                holder.acquire().await;
            }
            tracing::info!(identity = self.identity, "leading");
            self.metrics.lead(true);
            let act = act(
                self.planner.clone(),
                &self.client,
                &self.identity,
                self.metrics.clone(),
                Arc::clone(&self.state),
            );
            let lost = async {
                match &mut self.holder {
                    Some(holder) => holder.keep().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = act => return,
                () = lost => {}
            }
            self.state.stand_by();
            self.metrics.lead(false);
            tracing::warn!(
                "the Lease is lost, so nothing is written any more: another manager leads, or the API server is not reached"
            );
        }
    }
}

/// Acts until dropped.
async fn act(
    mut planner: Planner,
    client: &Client,
    identity: &str,
    metrics: Metrics,
    state: Arc<State>,
) {
    let namespace = &planner.settings.namespace;
    planner.settings.installation = installation::owner(client, namespace).await;
    state.lead();
    Shell::new(planner, client, identity, metrics, state)
        .run()
        .await;
}
