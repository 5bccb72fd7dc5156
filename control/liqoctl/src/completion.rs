//! `liqoctl completion`.

use crate::cli::Cli;
use anyhow::Result;
use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::aot::{Shell, generate};
use std::io::Write as _;

/// Which shell to complete commands in.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The shell.
    shell: Kind,
}

/// A shell.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
    /// PowerShell.
    #[value(name = "powershell")]
    PowerShell,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::io::stdout().write_all(&script(options.shell))?;
    Ok(())
}

fn script(shell: Kind) -> Vec<u8> {
    let shell = match shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
        Kind::PowerShell => Shell::PowerShell,
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "liqoctl", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_the_commands() {
        for shell in [Kind::Bash, Kind::Zsh, Kind::Fish, Kind::PowerShell] {
            let text = String::from_utf8(script(shell)).unwrap();
            assert!(text.contains("uninstall"), "{shell:?}");
        }
    }
}
