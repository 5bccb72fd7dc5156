//! Access to offloaded pods through the API of their virtual node: logs, commands, files and ports.

mod terminal;
mod under_load;

use super::{is_gone, peered};
use crate::fixture::{Peering, SOON, Suite, liqoctl};
use crate::peering::unpeer;
use crate::removal::kubectl;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::namespace::Namespace;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use terminal::command_on_a_terminal;

pub(super) fn add(suite: &mut Suite) {
    terminal::add(suite);
    under_load::add(suite);
}

/// Pods that count, and that send and receive files.
const PODS: &str = include_str!("../manifests/offloaded-access.yaml");

/// Size of the files that are copied, in bytes.
const FILE_LEN: usize = 50 << 20;

/// What is sent through a forwarded port, in bytes.
const FORWARDED_LEN: usize = 500 << 20;

/// Time limit of a large transfer.
const TRANSFERRED: Duration = Duration::from_secs(180);

pub(super) async fn logs_commands_files_and_ports_of_offloaded_pods(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let access = Namespace::create(rome, "access").await?;
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(rome, &["offload", "namespace", "access", strategy])?;
    access.apply(PODS).await?;
    for pod in ["pod/counter", "pod/source", "pod/listener"] {
        access.wait(pod, "Ready").await?;
    }
    let node = access.get("pod/counter", "{.spec.nodeName}").await?;
    ensure!(node == MILAN, "{node}");

    logs(&access).await?;
    for client in [Client::WebSocket, Client::Spdy] {
        commands(&access, client)?;
        command_on_a_terminal(&access, client).await?;
    }
    command_of_an_older_client(&access).await?;
    attached(&access).await?;
    files(&access, FILE_LEN).await?;
    ports(&access).await?;
    others_are_refused(&access).await?;

    liqoctl(
        rome,
        &["unoffload", "namespace", "access", "--skip-confirm"],
    )?;
    is_gone(milan, &format!("access-{ROME}"))?;
    access
        .kubectl(&["delete", "pods", "--all", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
}

async fn logs(access: &Namespace) -> Result<()> {
    let mut followed = access.spawn(&["logs", "-f", "counter"])?;
    followed.line_with("number 1.", SOON).await?;
    let tail = ["logs", "--tail=1", "--timestamps", "counter"];
    let line = access.kubectl(&tail).await?;
    let (time, number) = line.split_once(" number ").context(line.clone())?;
    time.parse::<jiff::Timestamp>().context("no timestamp")?;
    let number: u32 = number.trim().trim_end_matches('.').parse()?;
    // Lines from before the command, and later ones.
    for number in 2..=number + 3 {
        followed
            .line_with(&format!("number {number}."), SOON)
            .await?;
    }

    Ok(())
}

/// How `kubectl` opens streams.
#[derive(Clone, Copy, Debug)]
enum Client {
    WebSocket,
    Spdy,
}

fn commands(access: &Namespace, client: Client) -> Result<()> {
    let command = |words: &[&str]| command(access, client, words);
    let script = "echo out; echo err >&2; exit 42";
    let failed = command(&["exec", "counter", "--", "sh", "-c", script]).output()?;
    ensure!(failed.status.code() == Some(42), "{client:?}: {failed:?}");
    ensure!(failed.stdout == b"out\n", "{client:?}: {failed:?}");
    ensure!(
        failed.stderr.starts_with(b"err\n"),
        "{client:?}: {failed:?}"
    );

    // The input is larger than all buffers on the path.
    let input: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let mut cat = command(&["exec", "-i", "counter", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = cat.stdin.take().context("standard input is piped")?;
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = cat.wait_with_output()?;
    writer.join().ok().context("the writer has panicked")??;
    ensure!(
        output.stdout == input.as_bytes(),
        "{client:?}: {} bytes",
        output.stdout.len()
    );

    Ok(())
}

fn command(access: &Namespace, client: Client, words: &[&str]) -> Command {
    let mut command = access.command(words);
    let web_sockets = matches!(client, Client::WebSocket);
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", web_sockets.to_string());
    command
}

/// Runs a command with the WebSocket protocol of version 4, which the API server forwards to the virtual node.
async fn command_of_an_older_client(access: &Namespace) -> Result<()> {
    let proxy = ["proxy", "--port=0", "--disable-filter=true"];
    let mut proxy = access.spawn(&proxy)?;
    let line = proxy.line_with("127.0.0.1:", SOON).await?;
    let (_, port) = line.rsplit_once(':').context("no port")?;
    let port: u16 = port.trim().parse()?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/counter/exec?command=echo&command=older&stdout=true",
        access.name()
    );
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(SOON))?;
    connection.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    // The server closes the connection after the command has ended.
    while !contains(&received, b"\"status\":\"Success\"") {
        let mut buffer = [0; 4096];
        let count = connection.read(&mut buffer)?;
        ensure!(count > 0, "{}", String::from_utf8_lossy(&received));
        received.extend(&buffer[..count]);
    }
    let text = String::from_utf8_lossy(&received).into_owned();
    ensure!(text.starts_with("HTTP/1.1 101"), "{text}");
    // Channel 1 is the standard output.
    ensure!(contains(&received, b"\x01older\n"), "{text}");
    connection.shutdown(Shutdown::Both).or_else(|error| {
        let is_closed = error.kind() == std::io::ErrorKind::NotConnected;
        is_closed.then_some(()).ok_or(error)
    })?;

    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

async fn attached(access: &Namespace) -> Result<()> {
    let attach = ["attach", "-i", "listener"];
    access.kubectl_with(&attach, "ave\n").await?;
    let ended = "jsonpath={.status.phase}=Succeeded";
    access.wait("pod/listener", ended).await?;
    let log = access.kubectl(&["logs", "listener"]).await?;
    ensure!(log == "heard ave\n", "{log}");

    Ok(())
}

/// Copies a file of `len` bytes to the pod `source` and back.
async fn files(access: &Namespace, len: usize) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("liqo-access-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let removed = folder.clone();
    cleanup::defer("the copied files", async move || {
        Ok(std::fs::remove_dir_all(removed)?)
    });
    let paths: [PathBuf; 2] = ["there", "back"].map(|it| folder.join(it));
    let content: Vec<u8> = (0..len).map(|it| (it % 251) as u8).collect();
    std::fs::write(&paths[0], &content)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("no UTF-8");
    let [there, back] = [text(&paths[0])?, text(&paths[1])?];
    access
        .kubectl(&["cp", &there, "source:/tmp/copied"])
        .await?;
    access.kubectl(&["cp", "source:/tmp/copied", &back]).await?;

    let sum = access.sh("source", "sha256sum </tmp/copied").await?;
    let expected = Command::new("openssl")
        .args(["dgst", "-sha256", "-r", &there])
        .output()?
        .stdout;
    let expected = String::from_utf8(expected)?;
    let hash = |text: &str| text.split_whitespace().next().map(str::to_owned);
    ensure!(hash(&sum) == hash(&expected), "{sum} {expected}");
    ensure!(
        std::fs::read(&back)? == content,
        "the file that came back differs"
    );

    Ok(())
}

/// Receives the bytes that the pod `source` sends.
async fn ports(access: &Namespace) -> Result<()> {
    let mut forwarding = access.spawn(&["port-forward", "pod/source", ":7000"])?;
    let line = forwarding.line_with("127.0.0.1:", SOON).await?;
    let (_, rest) = line.split_once("127.0.0.1:").context("no address")?;
    let port: u16 = rest.split(' ').next().unwrap_or_default().parse()?;
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(TRANSFERRED))?;
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        match connection.read(&mut buffer)? {
            0 => break,
            count => received += count,
        }
    }
    ensure!(received == FORWARDED_LEN, "{received} bytes");

    Ok(())
}

/// The virtual node serves only its own pods, and only those who may use it.
async fn others_are_refused(access: &Namespace) -> Result<()> {
    let consumer = access.cluster();
    let names = ["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns"];
    let first = ["-o", "jsonpath={.items[0].metadata.name}"];
    let dns = kubectl(consumer, &[&names[..], &first].concat())?;
    let path = |pod: &str| format!("/api/v1/nodes/{MILAN}/proxy/containerLogs/{pod}?tailLines=1");
    let own = path(&format!("{}/counter/counter", access.name()));
    let line = access.kubectl(&["get", "--raw", &own]).await?;
    ensure!(line.starts_with("number "), "{line}");
    let other = path(&format!("kube-system/{dns}/coredns"));
    let refused = access.command(&["get", "--raw", &other]).output()?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && text.contains("NotFound"),
        "{text}"
    );

    let path = "{.status.addresses[0].address}";
    let address = access.get(&format!("node/{MILAN}"), path).await?;
    let url = format!("https://{address}:10250/pods");
    let worker = consumer.nodes().into_iter().next().context("no node")?;
    let code = [
        "-sk",
        "-m",
        "10",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &url,
    ];
    let anonymous = worker.exec("curl", &code)?;
    ensure!(anonymous == "401", "{anonymous}");
    let token = access.kubectl(&["create", "token", "default"]).await?;
    let header = format!("Authorization: Bearer {}", token.trim());
    let code = [&["-H", &header], code.as_slice()].concat();
    let unauthorized = worker.exec("curl", &code)?;
    ensure!(unauthorized == "403", "{unauthorized}");

    Ok(())
}
