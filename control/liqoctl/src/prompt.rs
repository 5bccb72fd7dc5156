//! Asks the user for confirmation.

use crate::global::Global;
use anyhow::{Context as _, Result, bail};
use std::io::{self, BufRead, IsTerminal as _, Write};

/// Number of prompts before an answer that is neither yes nor no is treated as no.
const TRIES: usize = 3;

/// Asks the user whether to continue.
///
/// # Errors
///
/// Returns an error if the answer is no. The end of standard input is treated as no.
pub(crate) async fn confirm(question: &str) -> Result<()> {
    let question = question.to_owned();
    let yes = tokio::task::spawn_blocking(move || {
        ask(&question, &mut io::stdin().lock(), &mut io::stdout())
    })
    .await
    .context("failed to ask for confirmation")??;
    if !yes {
        bail!("nothing was changed: confirm with 'y', or use --skip-confirm");
    }
    Ok(())
}

/// Asks the user whether to run a destructive verb, unless a flag confirms it.
///
/// # Errors
///
/// Returns an error if the answer is no.
pub(crate) async fn confirm_verb(global: &Global, verb: &str) -> Result<()> {
    if global.skip_confirm {
        return Ok(());
    }
    confirm(&format!(
        "{verb} is a potentially destructive command.\nAre you sure you want to continue?"
    ))
    .await
}

/// Returns whether a user can answer a prompt.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

fn ask(question: &str, input: &mut impl BufRead, out: &mut impl Write) -> io::Result<bool> {
    for _ in 0..TRIES {
        write!(out, "{question} [y/N]: ")?;
        out.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(out)?;
            return Ok(false);
        }
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" | "" => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(input: &str) -> bool {
        ask("Go on?", &mut input.as_bytes(), &mut Vec::new()).unwrap()
    }

    #[test]
    fn only_yes_is_yes() {
        assert!(answer("y\n"));
        assert!(answer("Yes\n"));
        assert!(answer("what\ny\n"));
        assert!(!answer("n\n"));
        assert!(!answer("\n"));
    }

    #[test]
    fn the_end_of_input_is_no() {
        assert!(!answer(""));
        assert!(!answer("what\n"));
    }

    #[test]
    fn prompts_are_limited() {
        assert!(!answer("a\nb\nc\ny\n"));
    }
}
