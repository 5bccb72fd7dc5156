//! Tests of prompts, with a pseudo-terminal and without one.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl::{command, execute, liqoctl};
use anyhow::{Context as _, Result, ensure};
use control_api::{NamespaceMap, NamespaceOffloading, Tenant, VirtualNode};
use kube::Api;
use kube::api::DeleteParams;
use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Child;
use tokio::time::timeout;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        unpeer_asks_on_a_terminal_only_and_only_if_namespaces_are_offloaded,
        a_prompt_ends_with_its_input_and_by_a_signal,
    );
}

/// Time in which a command ends that has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(30);

/// The character that ends the input of a terminal: Ctrl-D.
const END_OF_INPUT: &[u8] = &[4];

/// A command at a pseudo-terminal.
struct Terminal {
    child: Child,
    /// The other end of the terminal.
    user: File,
    text: String,
}

impl Terminal {
    fn start(local: &Site, words: &[&str]) -> Result<Self> {
        let OpenptyResult { master, slave } = openpty(None, None)?;
        let end = |end: &OwnedFd| end.try_clone().map(Stdio::from);
        let child = command(local, words)?
            .stdin(end(&slave)?)
            .stdout(end(&slave)?)
            .stderr(end(&slave)?)
            .spawn()?;

        Ok(Self {
            child,
            user: master.into(),
            text: String::new(),
        })
    }

    /// Reads what is printed, until it contains a text; `None` reads until the command ends.
    async fn read_until(&mut self, part: Option<&str>) -> Result<()> {
        let mut user = self.user.try_clone()?;
        let (part, mut text) = (part.map(str::to_owned), std::mem::take(&mut self.text));
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = [0; 4096];
            loop {
                if part.as_ref().is_some_and(|part| text.contains(part)) {
                    return (true, text);
                }
                // Linux reports EIO once no process has the terminal open.
                match user.read(&mut bytes) {
                    Ok(0) | Err(_) => return (part.is_none(), text),
                    Ok(count) => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
                }
            }
        });
        let (is_found, text) = timeout(SOON, read).await.context("nothing is printed")??;
        self.text = text;
        ensure!(is_found, "{}", self.text);
        Ok(())
    }

    /// Types a text, and waits for the end of the command.
    async fn answer(mut self, text: &[u8]) -> Result<(ExitStatus, String)> {
        self.user.write_all(text)?;
        self.read_until(None).await?;
        let status = timeout(AT_ONCE, self.child.wait()).await;
        Ok((status.context("the command does not end")??, self.text))
    }
}

async fn unpeer_asks_on_a_terminal_only_and_only_if_namespaces_are_offloaded(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let flag = format!("--remote-kubeconfig={}", milan.kubeconfig().display());
    let peer = ["peer", "--networking-disabled"];
    liqoctl(&rome, &milan, &peer).await?;
    offload(&rome).await?;
    let unpeer = ["unpeer", flag.as_str()];
    for (answer, message) in [
        (&b"n\n"[..], "nothing was changed"),
        (b"\n", "nothing was changed"),
        (END_OF_INPUT, "nothing was changed"),
        (b"what\nwhat\nwhat\n", "nothing was changed"),
    ] {
        let mut terminal = Terminal::start(&rome, &unpeer)?;
        terminal.read_until(Some("Continue? [y/N]: ")).await?;
        let (status, text) = terminal.answer(answer).await?;
        ensure!(status.code() == Some(1), "{status}: {text}");
        ensure!(text.contains("the namespaces demo at milan"), "{text}");
        ensure!(text.contains(message), "{text}");
        ensure!(rome.names::<VirtualNode>("").await? == ["milan"]);
        ensure!(milan.names::<Tenant>("").await? == ["rome"]);
    }
    let mut terminal = Terminal::start(&rome, &unpeer)?;
    terminal.read_until(Some("Continue? [y/N]: ")).await?;
    let (status, text) = terminal.answer(b"y\n").await?;
    ensure!(status.success(), "{status}: {text}");
    ensure!(rome.names::<VirtualNode>("").await?.is_empty());

    // Without a terminal, it warns and goes on.
    liqoctl(&rome, &milan, &peer).await?;
    offload(&rome).await?;
    let (is_success, out, error) = execute(&rome, &unpeer).await?;
    ensure!(is_success, "{error}");
    // Lines that are no terminal's have neither indentation nor control characters.
    for line in out.lines().chain(error.lines()) {
        let is_plain = !line.starts_with(' ') && !line.contains(char::is_control);
        ensure!(is_plain, "{line:?}");
    }
    ensure!(
        error.contains("WARN: the pods of the namespaces demo at milan are deleted"),
        "{error}"
    );

    // Without offloaded namespaces, it does not ask.
    let offloadings: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), "demo");
    offloadings
        .delete("offloading", &DeleteParams::default())
        .await?;
    until(Deadline::after(SOON), "no offloading", async || {
        let left = offloadings.get_opt("offloading").await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    liqoctl(&rome, &milan, &peer).await?;
    let mut terminal = Terminal::start(&rome, &unpeer)?;
    terminal.read_until(None).await?;
    let (status, text) = terminal.answer(b"").await?;
    ensure!(
        status.success() && !text.contains("[y/N]"),
        "{status}: {text}"
    );
    Ok(())
}

/// Offloads the namespace `demo`, and waits until the provider `milan` is to create one.
async fn offload(rome: &Site) -> Result<()> {
    rome.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}))
        .await?;
    rome.apply(&json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "demo"},
        "spec": {},
    }))
    .await?;
    let maps: Api<NamespaceMap> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    until(Deadline::after(SOON), "the NamespaceMap", async || {
        let map = maps.get("milan").await?;
        ensure!(map.spec.desired_mapping.contains_key("demo"), "{map:?}");
        Ok(())
    })
    .await
}

/// `cordon tenant` and `drain tenant` ask always. With standard input at its end they end with an error and use no processor
/// time, and SIGTERM ends them while they ask.
async fn a_prompt_ends_with_its_input_and_by_a_signal(_: &'static Fixture) -> Result<()> {
    let milan = Site::start("milan", "rome", &[]).await?;
    for verb in ["cordon", "drain"] {
        let words = [verb, "tenant", "rome"];
        let ended = timeout(AT_ONCE, execute(&milan, &words)).await;
        let (is_success, out, error) = ended.context("the command does not end")??;
        ensure!(!is_success, "{out}");
        ensure!(error.contains("--skip-confirm"), "{error}");
        ensure!(out.matches("[y/N]").count() == 1, "{out}");

        let mut terminal = Terminal::start(&milan, &words)?;
        terminal.read_until(Some("[y/N]: ")).await?;
        let pid = terminal.child.id().context("the command has ended")?;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?;
        let status = timeout(AT_ONCE, terminal.child.wait()).await;
        let status = status.context("SIGTERM is ignored")??;
        ensure!(!status.success(), "{status}");

        let terminal = Terminal::start(&milan, &words)?;
        let (status, text) = terminal.answer(END_OF_INPUT).await?;
        ensure!(status.code() == Some(1), "{status}: {text}");
    }
    // A prompt sleeps until its answer.
    let mut terminal = Terminal::start(&milan, &["cordon", "tenant", "rome"])?;
    terminal.read_until(Some("[y/N]: ")).await?;
    until(
        Deadline::after(SOON),
        "the state of the process",
        async || {
            let pid = terminal.child.id().context("the command has ended")?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            ensure!(stat.contains(") S "), "{stat}");
            Ok(())
        },
    )
    .await?;
    Ok(())
}
