//! The go command, as everything here is built with it.

use super::cache::{self, Cache};
use super::complaint;
use super::part::ENVIRONMENT;
use super::room::Store;
use crate::setup::go;
use crate::shell::{Interrupted, Shell};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

/// How a person gets a Go that will do.
const GET_GO: &str = "install a current Go from https://go.dev/dl and have its folder in PATH: any release since 1.21 fetches the right one";

/// The go command.
#[derive(Debug)]
pub(super) struct Go(Command);

impl Go {
    /// Finds it, or installs it.
    ///
    /// # Errors
    ///
    /// Returns an error that names the release that is needed and how to get it.
    pub(super) fn find(shell: &mut Shell) -> Result<Self> {
        let mut go = go::go(shell).map_err(|error| match error.is::<Interrupted>() {
            true => error,
            false => error.context(format!(
                "Kubernetes is built with {}; {GET_GO}",
                go::RELEASE
            )),
        })?;
        go.envs(ENVIRONMENT);

        Ok(Self(go))
    }

    /// Another call of it.
    pub(super) fn command(&self) -> Command {
        let Self(template) = self;
        let mut command = Command::new(template.get_program());
        command.args(template.get_args());
        if let Some(folder) = template.get_current_dir() {
            command.current_dir(folder);
        }
        for (name, value) in template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// The folders that a build writes to.
    ///
    /// # Errors
    ///
    /// Returns an error with its cure if the go command does not run.
    pub(super) fn stores(&self, shell: &mut Shell, cache: &Cache) -> Result<[Store; 3]> {
        let mut command = self.command();
        command.args(["env", "-json", "GOCACHE", "GOMODCACHE"]);
        let output = shell.output(command)?;
        if !output.status.success() {
            // Any call of another release of Go begins with fetching the right one.
            let text = String::from_utf8_lossy(&output.stderr);
            let (shown, cure) = (complaint::shown(&text), complaint::cure(&text));
            bail!(
                "{} does not run:\n    {shown}\n{cure}; or {GET_GO}",
                go::RELEASE
            );
        }
        let folders: Folders = serde_json::from_slice(&output.stdout)
            .context("`go env` does not tell where Go keeps what it built")?;

        let store = |what, variable, folder| Store {
            what,
            variable,
            folder,
        };
        Ok([
            store("programs", cache::VARIABLE, cache.root().to_owned()),
            store("compiled packages", "GOCACHE", folders.build),
            store("sources of modules", "GOMODCACHE", folders.modules),
        ])
    }
}

/// What `go env -json` prints.
#[derive(Deserialize)]
struct Folders {
    #[serde(rename = "GOCACHE")]
    build: PathBuf,
    #[serde(rename = "GOMODCACHE")]
    modules: PathBuf,
}
