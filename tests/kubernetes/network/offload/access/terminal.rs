//! `kubectl exec` and `kubectl attach` on a terminal.

use super::{Client, command};
use crate::fixture::{Peering, SOON, Suite, serial};
use crate::offload::peered;
use crate::offload::tools::{Offloaded, pod};
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::{Namespace, Running};
use serde_json::json;
use std::process::{Command, Stdio};

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, kubectl_attaches_a_terminal_to_an_offloaded_pod);
}

/// The rows and columns of each terminal, as `stty size` prints them.
const SIZE: &str = "33 77";

/// Prints the size of the terminal, once it has arrived, and then a line of input. busybox's `stty size` also succeeds while the
/// terminal has no size.
const COMMAND: &str = r#"until [ "$(stty size)" = "33 77" ]; do sleep 0.1; done; stty size;
    read word; echo heard $word; read word; exit 42"#;

/// Prints each line of input, and the size of the terminal while there is none. Ends after the line `exit`.
const READER: &str = r#"until [ "$word" = exit ]; do
    if read -r -t 0.5 word; then echo heard $word; else stty size; fi; done; exit 42"#;

/// Runs a command on a terminal. Size and input of the terminal reach the container.
pub(super) async fn command_on_a_terminal(access: &Namespace, client: Client) -> Result<()> {
    let exec = ["exec", "-it", "counter", "--", "sh", "-c", COMMAND];
    let mut terminal = on_a_terminal(access, client, &exec)?;
    terminal.line_with(SIZE, SOON).await?;
    terminal.write("ave\n")?;
    terminal.line_with("heard ave", SOON).await?;
    terminal.write("vale\n")?;
    let status = terminal.ended(SOON).await?;
    ensure!(status.code() == Some(42), "{client:?}: {status}");

    Ok(())
}

/// A terminal that is closed leaves the container running, so that the next one attaches to the same process.
async fn kubectl_attaches_a_terminal_to_an_offloaded_pod(peering: &'static Peering) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "attached").await?;
    for (client, name) in [
        (Client::WebSocket, "by-web-socket"),
        (Client::Spdy, "by-spdy"),
    ] {
        attached(&offloaded.home, client, name).await?;
    }

    offloaded.end().await
}

async fn attached(home: &Namespace, client: Client, name: &str) -> Result<()> {
    let mut reader = pod(name, &["sh", "-c", READER]);
    reader["spec"]["restartPolicy"] = json!("Never");
    let container = &mut reader["spec"]["containers"][0];
    container["stdin"] = json!(true);
    container["tty"] = json!(true);
    home.apply(&reader.to_string()).await?;
    let reader = format!("pod/{name}");
    home.wait(&reader, "Ready").await?;

    let attach = ["attach", "-it", name];
    let mut first = on_a_terminal(home, client, &attach)?;
    // The local terminal echoes nothing from now on.
    first.line_with(SIZE, SOON).await?;
    first.write("ave\n")?;
    let echo = first.line_with("ave", SOON).await?;
    ensure!(echo.trim() == "ave", "{client:?}: {echo:?} is no echo");
    first.line_with("heard ave", SOON).await?;
    drop(first);

    let mut second = on_a_terminal(home, client, &attach)?;
    second.line_with(SIZE, SOON).await?;
    second.write("vale\n")?;
    second.line_with("heard vale", SOON).await?;
    second.write("exit\n")?;
    // Unlike `exec`, `attach` succeeds whatever the exit code of the container is.
    let status = second.ended(SOON).await?;
    ensure!(status.success(), "{client:?}: {status}");
    let terminated = "{.status.containerStatuses[0].state.terminated.exitCode}";
    home.wait(&reader, &format!("jsonpath={terminated}=42"))
        .await?;
    let restarts = "{.status.containerStatuses[0].restartCount}";
    let restarts = home.get(&reader, restarts).await?;
    ensure!(restarts == "0", "{client:?}: {restarts} restarts");

    Ok(())
}

/// Starts `kubectl` on a terminal of [`SIZE`].
fn on_a_terminal(namespace: &Namespace, client: Client, words: &[&str]) -> Result<Running> {
    let kubectl = command(namespace, client, words);
    let line = format!("stty rows 33 cols 77; {}", shell_words(&kubectl));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]);
    let environment = kubectl.get_envs();
    terminal.envs(environment.filter_map(|(name, value)| Some((name, value?))));

    Running::start(terminal.stdin(Stdio::piped()))
}

/// Returns a command as words of a shell. No word contains a single quote.
fn shell_words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|it| format!("'{}'", it.to_string_lossy()));

    quoted.collect::<Vec<_>>().join(" ")
}
