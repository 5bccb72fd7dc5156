//! The flag `--kind`, with the commands that kind supports.

use super::{Command as Words, replace_process};
use crate::{host, kind, place};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Runs a command with kind.
///
/// # Errors
///
/// Returns an error if kind or Docker is missing or fails, or if kind does not support the
/// command.
pub(super) fn execute(words: Words) -> Result<ExitCode> {
    kind::check()?;
    match words {
        Words::Build(_) => eprintln!("    nothing to build: kind's images contain all programs"),
        Words::Up(up) => {
            for spec in up.specs()? {
                if kind::names()?.contains(&spec.name) {
                    eprintln!("    {} is up", spec.name);
                    continue;
                }
                let config = kind::config(&spec)?.to_string();
                let kubeconfig = kubeconfig(&spec.name)?;
                let mut command = Command::new("kind");
                command
                    .args(["create", "cluster", "--config", "-", "--wait", "180s"])
                    .arg("--kubeconfig")
                    .arg(kubeconfig);
                host::checked(&mut command, &config)?;
                eprintln!("    {} is up", spec.name);
            }
        }
        Words::Down(down) => {
            let names = if down.all { kind::names()? } else { down.names };
            for name in names {
                host::run("kind", &["delete", "cluster", "--name", &name])?;
            }
        }
        Words::List(_) => kind::names()?.iter().for_each(|name| println!("{name}")),
        Words::Kubeconfig(it) => println!("{}", known(&it.name)?.display()),
        Words::Load(load) => {
            let archive = load.archive.display().to_string();
            host::run(
                "kind",
                &["load", "image-archive", &archive, "--name", &load.name],
            )?;
        }
        Words::Exec(exec) => {
            let mut command = Command::new("docker");
            command.args(["exec", "--interactive", &exec.node, &exec.program]);
            command.args(exec.rest.args);
            return Err(replace_process(command));
        }
        Words::Kubectl(tool) => return Err(run("kubectl", tool)),
        Words::Helm(tool) => return Err(run("helm", tool)),
        Words::Logs(_)
        | Words::Usage(_)
        | Words::Uplink(_)
        | Words::Node(_)
        | Words::Component(_)
        | Words::Pod(_)
        | Words::NodeStart { .. }
        | Words::NodeInit { .. }
        | Words::Relay(_)
        | Words::LoadBalancer { .. } => {
            bail!("--kind: kind does not support this command: leave out --kind")
        }
    }

    Ok(ExitCode::SUCCESS)
}

fn run(program: &str, tool: super::run::Tool) -> anyhow::Error {
    match known(&tool.name) {
        Ok(kubeconfig) => {
            let mut command = Command::new(program);
            command.env("KUBECONFIG", kubeconfig).args(tool.rest.args);
            replace_process(command)
        }
        Err(error) => error,
    }
}

fn known(name: &str) -> Result<PathBuf> {
    let names = kind::names()?;
    if !names.iter().any(|known| known == name) {
        bail!(
            "kind has no cluster {name:?}: there are {}",
            names.join(", ")
        );
    }

    kubeconfig(name)
}

/// Writes the kubeconfig of a cluster into the cache, and returns its path. Clusters of kind
/// outlive the laboratory's state, so the kubeconfigs must not be stored there.
fn kubeconfig(name: &str) -> Result<PathBuf> {
    let folder = place::cache().join("kind");
    fs::create_dir_all(&folder).context("failed to create a folder for kubeconfigs")?;

    Ok(folder.join(name))
}
