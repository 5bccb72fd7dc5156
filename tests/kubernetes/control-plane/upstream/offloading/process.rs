//! A process of the virtual kubelet, as the Deployment of its VirtualNode describes it.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The environment variable that `cargo xtask test --kubernetes` sets to the virtual kubelet.
const PROGRAM: &str = "LIQO_LAB_VIRTUAL_KUBELET";

/// The address of the pod. The process serves all addresses.
pub(crate) const ADDRESS: &str = "127.0.0.9";

/// The VirtualNode of a process, and what distinguishes the process from others on this machine.
pub(crate) struct Instance<'a> {
    /// Name of the VirtualNode, and of its ResourceSlice.
    pub(crate) node: &'a str,
    /// The address of the pod.
    pub(crate) address: &'a str,
    /// Further arguments. Two processes need different ports, because each serves all addresses.
    pub(crate) arguments: &'a [&'a str],
}

const MILAN: Instance<'_> = Instance {
    node: "milan",
    address: ADDRESS,
    arguments: &[],
};

/// A process of a virtual kubelet. It ends with this value.
pub(crate) struct VirtualKubelet {
    /// The name of its pod.
    pub(crate) pod: String,
    /// The kubeconfig for the provider, as the volume of its Secret.
    kubeconfig: PathBuf,
    command: Command,
    child: Child,
}

impl VirtualKubelet {
    /// Starts the process of the VirtualNode `milan` once there is a pod for it, with the token of that pod.
    pub(crate) async fn start(rome: &Site) -> Result<Self> {
        Self::start_with(rome, Some(&provider(rome).await?)).await
    }

    /// Starts the process with another kubeconfig for the provider, or with none.
    pub(crate) async fn start_with(rome: &Site, kubeconfig: Option<&[u8]>) -> Result<Self> {
        Self::launch(rome, &MILAN, kubeconfig).await
    }

    /// Starts the process of another VirtualNode.
    pub(crate) async fn start_of(rome: &Site, instance: &Instance<'_>) -> Result<Self> {
        let kubeconfig = provider_of(rome, instance.node).await?;
        Self::launch(rome, instance, Some(&kubeconfig)).await
    }

    async fn launch(
        rome: &Site,
        instance: &Instance<'_>,
        kubeconfig: Option<&[u8]>,
    ) -> Result<Self> {
        let (node, address) = (instance.node, instance.address);
        let namespace = rome.tenant_namespace();
        let rest = Rest::new(rome.client.clone(), "kubelet");
        let labels = format!("liqo.io/virtual-node={node}");
        let pod = until(Deadline::after(SOON), "the pod", async || {
            rest.only("Pod", &namespace, &labels).await
        })
        .await?;
        let pod = run(&rest, pod, address).await?;
        let container = &pod["spec"]["containers"][0];
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let name = pod.metadata.name.clone().context("no name")?;
        let control_plane = rome.control_plane();
        let token = control_plane.kubeconfig_of_pod(&pod).await?;
        let file = format!("kubeconfig-of-the-provider-for-{node}");
        let path = control_plane.folder().join(file);
        if let Some(kubeconfig) = kubeconfig {
            write(&path, kubeconfig)?;
        }
        let arguments = container["args"].as_array().context("no arguments")?;
        let arguments = arguments.iter().filter_map(Value::as_str);

        let program = env::var_os(PROGRAM).with_context(|| format!("{PROGRAM} is not set"))?;
        let mut command = Command::new(program);
        command
            .args(arguments.map(|it| it.replace("$(POD_IP)", address)))
            .args(instance.arguments)
            .arg(format!("--kubeconfig={}", path.display()))
            .arg("--local-api-servers")
            .env("POD_IP", address)
            .env("POD_NAME", &name)
            .env("POD_NAMESPACE", &namespace)
            .env("KUBECONFIG", token)
            .env("RUST_LOG", "error")
            .kill_on_drop(true);
        let child = spawn(&mut command)?;

        Ok(Self {
            pod: name,
            kubeconfig: path,
            command,
            child,
        })
    }

    /// Replaces the kubeconfig for the provider, as the kubelet does when the Secret changes.
    pub(crate) fn connect(&self, kubeconfig: &[u8]) -> Result<()> {
        write(&self.kubeconfig, kubeconfig)
    }

    /// Ends the process, and starts it again with further arguments.
    pub(crate) async fn restart_with(&mut self, arguments: &[&str]) -> Result<()> {
        terminate(&mut self.child).await?;
        self.child = spawn(self.command.args(arguments))?;

        Ok(())
    }

    /// Ends the process, which [`Self::resume`] starts again.
    pub(crate) async fn halt(&mut self) -> Result<()> {
        terminate(&mut self.child).await
    }

    pub(crate) fn resume(&mut self) -> Result<()> {
        self.child = spawn(&mut self.command)?;

        Ok(())
    }

    /// Kills the process, which cannot release its Leases then. [`Self::resume`] starts it again.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let killed = self.child.kill().await;
        killed.context("failed to kill a virtual kubelet")
    }

    /// Kills the process, and starts it again.
    pub(crate) async fn crash(&mut self) -> Result<()> {
        self.kill().await?;
        self.resume()
    }

    /// Ends the process as Kubernetes does.
    pub(crate) async fn stop(mut self) -> Result<()> {
        terminate(&mut self.child).await
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().context("failed to start a virtual kubelet")
}

async fn terminate(child: &mut Child) -> Result<()> {
    let pid = child.id().context("the virtual kubelet has ended")?;
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).context("failed to send a signal")?;
    let status = timeout(SOON, child.wait()).await;
    let status = status.context("a virtual kubelet does not stop")??;
    ensure!(status.success(), "{status}");

    Ok(())
}

/// Returns the kubeconfig of the ResourceSlice `milan` for the provider.
pub(crate) async fn provider(rome: &Site) -> Result<Vec<u8>> {
    provider_of(rome, MILAN.node).await
}

async fn provider_of(rome: &Site, slice: &str) -> Result<Vec<u8>> {
    let secret = format!("kubeconfig-resourceslice-{slice}");
    rome.secret(&rome.tenant_namespace(), &secret, "kubeconfig")
        .await
}

/// Writes a file that only this user reads, at once.
fn write(path: &Path, text: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path).context("failed to replace a kubeconfig")
}

/// Reports that a pod of the virtual kubelet is ready at an address.
async fn run(rest: &Rest, mut pod: Value, address: &str) -> Result<Value> {
    pod["status"] = json!({
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
        ],
        "podIP": address,
        "podIPs": [{"ip": address}],
    });

    rest.update_part("status", &pod).await
}
