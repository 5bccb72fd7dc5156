//! Our nft table, through the program `nft`.

use crate::kernel::Accepted;
use crate::ruleset::{FAMILY, Ruleset, TABLE};
use nftables::helper::{
    DEFAULT_ARGS, DEFAULT_NFT, NftablesError, apply_ruleset_raw_async, get_current_ruleset_raw,
    get_current_ruleset_raw_async,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// `nft` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such program.
    #[error("failed to run nft: install nftables, and have nft in PATH")]
    Missing(#[source] io::Error),

    /// It does not end.
    #[error("nft failed to {what} within {} s", TIMEOUT.as_secs())]
    Slow {
        /// What was tried.
        what: &'static str,
    },

    /// It may not.
    #[error("nft failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// What was tried.
        what: &'static str,
    },

    /// It said something else.
    #[error("nft failed to {what}: {message}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What it said.
        message: String,
    },
}

/// How long `nft` may take: a thousand times what it needs, but not for ever.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The table's only user, with what it knows of `nft`'s way of listing.
#[derive(Default)]
pub(crate) struct Nft {
    /// What the last ruleset became where that is not what was asked for: another
    /// version of `nft` may list in another form, which is no reason to set it again.
    accepted: Option<Accepted>,
}

impl Nft {
    /// Returns the table's ruleset, `None` without the table.
    pub(crate) async fn observe(&self) -> Result<Option<Ruleset>, Error> {
        let listed = list().await?.map(|listing| Ruleset::listed(&listing));

        Ok(match (listed, &self.accepted) {
            (Some(listed), Some(accepted)) if listed == accepted.listed => {
                Some(accepted.desired.clone())
            }
            (listed, _) => listed,
        })
    }

    /// Makes `desired` of the table, which was `observed`.
    pub(crate) async fn set(
        &mut self,
        desired: &Ruleset,
        observed: Option<&Ruleset>,
    ) -> Result<(), Error> {
        run("set our table", &desired.transaction(observed)).await?;

        self.accepted = list()
            .await?
            .map(|listing| Ruleset::listed(&listing))
            .filter(|listed| listed != desired)
            .map(|listed| Accepted {
                desired: desired.clone(),
                listed,
            });
        if self.accepted.is_some() {
            tracing::debug!("nft lists our table in another form than it was given");
        }

        Ok(())
    }

    /// Whether the last ruleset is listed as it was given.
    #[cfg(test)]
    pub(crate) fn is_verbatim(&self) -> bool {
        self.accepted.is_none()
    }

    /// Deletes the table.
    pub(crate) async fn delete(&mut self) -> Result<(), Error> {
        self.accepted = None;
        let table = json!({"family": FAMILY, "name": TABLE});
        // Adding what exists changes nothing; so that deleting cannot fail.
        let commands =
            json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]});

        run("delete our table", &commands).await
    }
}

/// Returns the packets that each named counter of our table has counted.
///
/// Blocks for as long as `nft` runs, some milliseconds.
///
/// # Errors
///
/// Returns [`Error`] if `nft` fails.
pub(crate) fn counters() -> Result<BTreeMap<String, u64>, Error> {
    let listing = get_current_ruleset_raw(DEFAULT_NFT, &LIST_ARGS);
    let listing = parse(listing)?.unwrap_or_default();
    let objects = listing["nftables"].as_array().into_iter().flatten();

    Ok(objects
        .filter_map(|object| {
            let counter = object.get("counter")?;
            let name = counter["name"].as_str()?.to_owned();
            Some((name, counter["packets"].as_u64()?))
        })
        .collect())
}

const LIST: &str = "list our table";
const LIST_ARGS: [&str; 4] = ["list", "table", FAMILY, TABLE];

async fn list() -> Result<Option<Value>, Error> {
    let listing = get_current_ruleset_raw_async(DEFAULT_NFT, &LIST_ARGS);

    parse(in_time(LIST, listing).await?)
}

fn parse(listing: Result<String, NftablesError>) -> Result<Option<Value>, Error> {
    let listing = match listing {
        Ok(listing) => listing,
        Err(NftablesError::NftFailed { stderr, .. }) if stderr.contains("No such file") => {
            return Ok(None);
        }
        Err(error) => return Err(explain(LIST, error)),
    };

    serde_json::from_str(&listing)
        .map(Some)
        .map_err(|error| Error::Failed {
            what: LIST,
            message: error.to_string(),
        })
}

async fn run(what: &'static str, commands: &Value) -> Result<(), Error> {
    let commands = commands.to_string();
    let applied = apply_ruleset_raw_async(&commands, DEFAULT_NFT, DEFAULT_ARGS);

    in_time(what, applied)
        .await?
        .map(drop)
        .map_err(|error| explain(what, error))
}

async fn in_time<T>(what: &'static str, future: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .map_err(|_| Error::Slow { what })
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
    if message.contains("not permitted") {
        return Error::Privilege { what };
    }

    Error::Failed { what, message }
}
