//! Reads and writes the agent's nft table with the program `nft`.

use crate::kernel::Accepted;
use crate::ruleset::{ElementChanges, FAMILY, Ruleset, TABLE};
use nftables::helper::{DEFAULT_ARGS, DEFAULT_NFT, NftablesError, apply_ruleset_raw_async};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::process::Command;

/// A call of `nft` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program is not in PATH.
    #[error("failed to run nft: install nftables, and add the directory of nft to PATH")]
    Missing(#[source] io::Error),

    /// The program did not end within its time-out.
    #[error("nft timed out: failed to {what} within {} s", limit.as_secs())]
    Timeout {
        /// The action, as in "failed to {what}".
        what: &'static str,
        limit: Duration,
    },

    /// The kernel returned `EPERM` to `nft`.
    #[error("nft failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// The action, as in "failed to {what}".
        what: &'static str,
    },

    /// `nft` failed for any other reason, or its output is malformed.
    #[error("nft failed to {what}: {message}")]
    Failed {
        /// The action, as in "failed to {what}".
        what: &'static str,
        /// Standard error of `nft`, or the cause of the failure.
        message: String,
    },
}

/// Time-out of reading and writing the table. Both usually take about 10 ms.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time-out of listing the counters. It is short because a user or a metrics scrape waits for the
/// result.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs `nft`, and stores the form in which `nft` lists the ruleset that the agent set last.
#[derive(Default)]
pub(crate) struct Nft {
    /// The ruleset that the agent set last, if `nft` lists it in another form. Some versions of
    /// `nft` change the form. Without this value, the agent would set the table again after each
    /// observation.
    accepted: Option<Accepted>,
}

impl Nft {
    /// Returns the table's ruleset, `None` if the table does not exist.
    pub(crate) async fn observe(&self) -> Result<Option<Ruleset>, Error> {
        let listed = list_table().await?.map(|listing| Ruleset::listed(&listing));

        Ok(match (listed, &self.accepted) {
            (Some(listed), Some(accepted)) if listed == accepted.listed => {
                Some(accepted.desired.clone())
            }
            (listed, _) => listed,
        })
    }

    /// Replaces the content of the table by `desired`. `observed` is the current content.
    pub(crate) async fn set(
        &mut self,
        desired: &Ruleset,
        observed: Option<&Ruleset>,
    ) -> Result<(), Error> {
        run("set our table", &desired.transaction(observed)).await?;

        // The table is set also if it cannot be listed. The next observation compares it then.
        self.accepted = list_table()
            .await
            .unwrap_or_default()
            .map(|listing| Ruleset::listed(&listing))
            .filter(|listed| listed != desired)
            .map(|listed| Accepted {
                desired: desired.clone(),
                listed,
            });
        if self.accepted.is_some() {
            tracing::debug!("nft lists our table in a form that differs from the given one");
        }

        Ok(())
    }

    /// Changes elements of the table's sets and maps. `observed` is the current content.
    ///
    /// Sets the whole table if the change fails or if `nft` lists other content afterwards, because
    /// another program may have changed the table in the meantime.
    pub(crate) async fn change(
        &mut self,
        changes: &ElementChanges,
        observed: Option<&Ruleset>,
    ) -> Result<(), Error> {
        let what = "change our table";
        let Some(observed) = observed else {
            return Err(failed(what, "it does not exist".to_owned()));
        };
        let mut desired = observed.clone();
        desired.change(changes);
        if self.accepted.is_some() {
            return self.set(&desired, Some(observed)).await;
        }

        let changed = run(what, &changes.transaction()).await;
        let listed = list_table().await.unwrap_or_default();
        let listed = listed.map(|listing| Ruleset::listed(&listing));
        if changed.is_ok() && listed.as_ref() == Some(&desired) {
            return Ok(());
        }
        tracing::debug!(?changed, "setting our whole table, which has other content");

        self.set(&desired, listed.as_ref()).await
    }

    /// Returns whether `nft` lists the ruleset in exactly the form in which the agent set it last.
    #[cfg(test)]
    pub(crate) fn is_verbatim(&self) -> bool {
        self.accepted.is_none()
    }

    pub(crate) async fn delete(&mut self) -> Result<(), Error> {
        self.accepted = None;
        let table = json!({"family": FAMILY, "name": TABLE});
        // Deleting a missing table would fail, so add it first. Adding an existing table changes
        // nothing.
        let commands =
            json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]});

        run("delete our table", &commands).await
    }
}

/// Returns the packet count of each named counter in the agent's table.
///
/// # Errors
///
/// Returns [`Error`] if `nft` fails.
pub(crate) async fn counters() -> Result<BTreeMap<String, u64>, Error> {
    let what = "list our counters";
    let listing = list(what, &["counters", "table"], COUNTERS_TIMEOUT).await?;
    let listing = listing.unwrap_or_default();
    let objects = listing["nftables"].as_array().into_iter().flatten();

    Ok(objects
        .filter_map(|object| {
            let counter = object.get("counter")?;
            let name = counter["name"].as_str()?.to_owned();
            Some((name, counter["packets"].as_u64()?))
        })
        .collect())
}

async fn list_table() -> Result<Option<Value>, Error> {
    list("list our table", &["table"], TIMEOUT).await
}

/// Runs `nft -j list` with the arguments `kind` for the agent's table. Returns `None` if the table
/// does not exist.
///
/// The helper function of the crate `nftables` is not used, because it does not kill an `nft` that
/// hangs.
async fn list(what: &'static str, kind: &[&str], limit: Duration) -> Result<Option<Value>, Error> {
    let failed = |message: &dyn ToString| failed(what, message.to_string());
    let mut command = Command::new("nft");
    // Protocols are listed as numbers, because their names depend on the host's /etc/protocols.
    command
        .args(["--json", "--numeric-protocol", "list"])
        .args(kind)
        .args([FAMILY, TABLE]);
    let output = match in_time(what, limit, command.kill_on_drop(true).output()).await? {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing(error)),
        Err(error) => return Err(failed(&error)),
    };
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let is_gone = message.contains("No such file");
        return if is_gone {
            Ok(None)
        } else {
            Err(failed(&message.trim()))
        };
    }

    serde_json::from_slice(&output.stdout)
        .map(Some)
        .map_err(|error| failed(&error))
}

async fn run(what: &'static str, commands: &Value) -> Result<(), Error> {
    let commands = commands.to_string();
    let applied = apply_ruleset_raw_async(&commands, DEFAULT_NFT, DEFAULT_ARGS);

    in_time(what, TIMEOUT, applied)
        .await?
        .map(drop)
        .map_err(|error| explain(what, error))
}

async fn in_time<T>(
    what: &'static str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| Error::Timeout { what, limit })
}

fn explain(what: &'static str, error: NftablesError) -> Error {
    let message = match error {
        NftablesError::NftExecution { inner, .. } if inner.kind() == io::ErrorKind::NotFound => {
            return Error::Missing(inner);
        }
        NftablesError::NftFailed { stderr, .. } => stderr.trim().to_owned(),
        NftablesError::NftExecution { inner, .. } => inner.to_string(),
        NftablesError::NftOutputEncoding { inner, .. } => inner.to_string(),
        NftablesError::NftInvalidJson(inner) => inner.to_string(),
    };

    failed(what, message)
}

fn failed(what: &'static str, message: String) -> Error {
    if message.contains("not permitted") {
        return Error::Privilege { what };
    }

    Error::Failed { what, message }
}
