//! Our nft table, read and written by the program `nft`.

use crate::kernel::Accepted;
use crate::ruleset::{FAMILY, Ruleset, TABLE};
use nftables::helper::{DEFAULT_ARGS, DEFAULT_NFT, NftablesError, apply_ruleset_raw_async};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::process::Command;

/// `nft` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program is not installed.
    #[error("failed to run nft: install nftables, and have nft in PATH")]
    Missing(#[source] io::Error),

    /// It did not end within its time-out.
    #[error("nft timed out: failed to {what} within {} s", limit.as_secs())]
    Timeout {
        /// The action, as in "failed to {what}".
        what: &'static str,
        limit: Duration,
    },

    /// `EPERM`.
    #[error("nft failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// The action, as in "failed to {what}".
        what: &'static str,
    },

    /// Any other failure.
    #[error("nft failed to {what}: {message}")]
    Failed {
        /// The action, as in "failed to {what}".
        what: &'static str,
        /// From standard error.
        message: String,
    },
}

/// A thousand times the usual duration.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time-out of listing the counters: a user or a scraper waits for it.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads and writes the table.
#[derive(Default)]
pub(crate) struct Nft {
    /// The listed form of the last ruleset if it differs from the desired form. Versions of `nft`
    /// list the same rules differently; that must not cause the table to be set again.
    accepted: Option<Accepted>,
}

impl Nft {
    /// Returns the table's ruleset, `None` without the table.
    pub(crate) async fn observe(&self) -> Result<Option<Ruleset>, Error> {
        let listed = list_table().await?.map(|listing| Ruleset::listed(&listing));

        Ok(match (listed, &self.accepted) {
            (Some(listed), Some(accepted)) if listed == accepted.listed => {
                Some(accepted.desired.clone())
            }
            (listed, _) => listed,
        })
    }

    /// Replaces the table's content `observed` by `desired`.
    pub(crate) async fn set(
        &mut self,
        desired: &Ruleset,
        observed: Option<&Ruleset>,
    ) -> Result<(), Error> {
        run("set our table", &desired.transaction(observed)).await?;

        self.accepted = list_table()
            .await?
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

    /// Whether `nft` lists the last ruleset in the given form.
    #[cfg(test)]
    pub(crate) fn is_verbatim(&self) -> bool {
        self.accepted.is_none()
    }

    pub(crate) async fn delete(&mut self) -> Result<(), Error> {
        self.accepted = None;
        let table = json!({"family": FAMILY, "name": TABLE});
        // Adding an existing table changes nothing; deleting a missing one would fail.
        let commands =
            json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]});

        run("delete our table", &commands).await
    }
}

/// Returns the packet count of each named counter of our table.
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

/// Lists the objects of our table of a `kind`; `None` without the table.
///
/// Without the helper of the crate `nftables`, which does not kill an `nft` that hangs.
async fn list(what: &'static str, kind: &[&str], limit: Duration) -> Result<Option<Value>, Error> {
    let failed = |message: &dyn ToString| failed(what, message.to_string());
    let mut command = Command::new("nft");
    command
        .args(["-j", "list"])
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
