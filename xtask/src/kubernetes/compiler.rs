//! Finds and calls the go command, which builds all parts.

use super::cache::{self, Cache};
use super::disk_space::Store;
use super::go_error;
use super::part::ENVIRONMENT;
use crate::setup::go;
use crate::shell::{Interrupted, Shell};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

/// Remedy if the go command is missing or too old.
const GET_GO: &str = "install Go 1.21 or later from https://go.dev/dl and add its folder to PATH: it downloads the required release";

/// The go command with its arguments and environment.
#[derive(Debug)]
pub(super) struct Go(Command);

impl Go {
    /// Finds the go command. Installs Go if it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error with the required Go release and the remedy.
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

    /// Returns a new call of the go command with the same environment.
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

    /// Returns the folders to which a build writes.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if the go command fails.
    pub(super) fn stores(&self, shell: &mut Shell, cache: &Cache) -> Result<[Store; 3]> {
        let mut command = self.command();
        command.args(["env", "-json", "GOCACHE", "GOMODCACHE"]);
        let output = shell.output(command)?;
        if !output.status.success() {
            // This is the first call that sets `GOTOOLCHAIN`. So the go command may download the
            // required release first, and this download can fail.
            let text = String::from_utf8_lossy(&output.stderr);
            let (excerpt, remedy) = (go_error::excerpt(&text), go_error::remedy(&text));
            bail!(
                "{} does not run:\n    {excerpt}\n{remedy}; or {GET_GO}",
                go::RELEASE
            );
        }
        let folders: Folders =
            serde_json::from_slice(&output.stdout).context("`go env` printed no folders")?;

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

/// The requested values in the output of `go env -json`.
#[derive(Deserialize)]
struct Folders {
    #[serde(rename = "GOCACHE")]
    build: PathBuf,
    #[serde(rename = "GOMODCACHE")]
    modules: PathBuf,
}
