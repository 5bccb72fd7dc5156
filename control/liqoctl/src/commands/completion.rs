//! `liqoctl completion`.

use anyhow::Result;
use clap::{Args, Command, ValueEnum};
use clap_complete::aot::{Shell, generate};
use std::io::Write as _;

/// Flags of `liqoctl completion`.
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

/// Prints the script that completes `command`.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn run(options: &Options, command: &mut Command) -> Result<()> {
    std::io::stdout().write_all(&script(options.shell, command))?;
    Ok(())
}

fn script(shell: Kind, command: &mut Command) -> Vec<u8> {
    let shell = match shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
        Kind::PowerShell => Shell::PowerShell,
    };
    let mut text = Vec::new();
    generate(shell, command, "liqoctl", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_the_commands() {
        let mut command = Command::new("liqoctl").subcommand(Command::new("uninstall"));
        for shell in [Kind::Bash, Kind::Zsh, Kind::Fish, Kind::PowerShell] {
            let text = String::from_utf8(script(shell, &mut command)).unwrap();
            assert!(text.contains("uninstall"), "{shell:?}");
        }
    }
}
