//! Tests of the proxy in front of the API server: requests through it, and the IP object for it.

use crate::authentication::site::Site;
use crate::fixture::{
    Deadline, Fixture, LIQO, SOON, Suite, code, config_map, parallel, serial, until,
};
use anyhow::{Context as _, Result, ensure};
use control_api::IP;
use control_runtime::transport;
use futures_util::StreamExt as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kubernetes_lab::pki::Subject;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::env;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        clients_reach_the_api_server_through_the_proxy_alone,
        the_proxy_adds_no_rights,
    );
    serial!(suite, the_ip_of_the_proxy_follows_its_service);
}

/// The environment variable that `cargo xtask test --kubernetes` sets to the program of the proxy.
const PROGRAM: &str = "LIQO_LAB_EDGE";

/// The API server as peers name it: the name is in its certificate, and resolves nowhere in the tests.
const SERVER: &str = "https://kubernetes.default.svc:443";

/// A process of the proxy. It ends with this value.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    http: SocketAddr,
    child: Child,
}

impl Proxy {
    /// Starts the proxy in front of the API server with this URL.
    pub(crate) async fn start(server: &str) -> Result<Self> {
        let program = env::var_os(PROGRAM).with_context(|| format!("{PROGRAM} is not set"))?;
        let [address, http] = [free_address()?, free_address()?];
        let server = server.strip_prefix("https://").context("no HTTPS URL")?;
        let child = Command::new(program)
            .arg("proxy")
            .arg(format!("--listen={address}"))
            .arg(format!("--api-server={server}"))
            .arg(format!("--http={http}"))
            .arg("--leave-timeout=0.1")
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the proxy")?;
        let proxy = Self {
            address,
            http,
            child,
        };
        until(Deadline::after(SOON), "the proxy", async || {
            let ready = proxy.get("/readyz").await?;
            ensure!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
            Ok(())
        })
        .await?;

        Ok(proxy)
    }

    /// Returns a client whose only way to the API server is the proxy.
    async fn client(&self, fixture: &Fixture, user: &str) -> Result<Client> {
        let group = (user == "caesar").then_some("system:masters");
        let path = fixture
            .control_plane
            .kubeconfig_as(Subject { user, group }, SERVER)?;
        let mut kubeconfig = Kubeconfig::read_from(path)?;
        for cluster in kubeconfig.clusters.iter_mut() {
            if let Some(cluster) = &mut cluster.cluster {
                cluster.proxy_url = Some(format!("http://{}", self.address));
            }
        }
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;

        Ok(transport::client(&config)?)
    }

    /// Returns the response of the endpoint for metrics and health.
    async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.http).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;

        Ok(response)
    }
}

async fn clients_reach_the_api_server_through_the_proxy_alone(
    fixture: &'static Fixture,
) -> Result<()> {
    const NAMESPACE: &str = "through-the-proxy";
    fixture.namespace(NAMESPACE).await?;
    let mut proxy = Proxy::start(fixture.control_plane.server()).await?;
    let api: Api<ConfigMap> = Api::namespaced(proxy.client(fixture, "caesar").await?, NAMESPACE);

    let watch = WatchParams::default().timeout(60);
    let mut events = pin!(api.watch(&watch, "0").await?);
    let object = config_map(&json!({"name": "a"}))?;
    api.create(&PostParams::default(), &object).await?;
    let seen = async {
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(map) = event?
                && map.metadata.name.as_deref() == Some("a")
            {
                return Ok(());
            }
        }
        anyhow::bail!("the watch has ended")
    };
    timeout(SOON, seen).await.context("no event")??;

    let metrics = proxy.get("/metrics").await?;
    ensure!(
        metrics.contains("liqo_proxy_connections_active")
            && !metrics.contains("liqo_proxy_connections_accepted_total 0"),
        "{metrics}"
    );
    let pid = proxy.child.id().context("the proxy has ended")?;
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?;
    let status = timeout(SOON, proxy.child.wait()).await;
    let status = status.context("the proxy does not stop")??;
    ensure!(status.success(), "{status}");
    let refused = api.get("a").await;
    ensure!(refused.is_err(), "there is another way to the API server");

    Ok(())
}

async fn the_proxy_adds_no_rights(fixture: &'static Fixture) -> Result<()> {
    let proxy = Proxy::start(fixture.control_plane.server()).await?;
    let client = proxy.client(fixture, "brutus").await?;

    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|it| it.user_info);
    let user = user.and_then(|it| it.username);
    ensure!(user.as_deref() == Some("brutus"), "{user:?}");
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, LIQO);
    let refused = code(secrets.list(&Default::default()).await)?;
    ensure!(refused == 403, "{refused}");

    Ok(())
}

/// The manager has the rights of the chart only.
async fn the_ip_of_the_proxy_follows_its_service(_: &'static Fixture) -> Result<()> {
    let site = Site::start("rome", "milan", &[]).await?;
    let services: Api<Service> = Api::namespaced(site.client.clone(), LIQO);
    let ips: Api<IP> = Api::namespaced(site.client.clone(), LIQO);
    let service = json!({
        "metadata": {"name": "liqo-proxy", "labels": {"app.kubernetes.io/name": "proxy"}},
        "spec": {"ports": [{"name": "http", "port": 8118, "targetPort": "proxy"}]},
    });
    let service: Service = serde_json::from_value(service)?;
    let follows = async |service: Service| {
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        let address = address.context("no ClusterIP")?;
        until(Deadline::after(SOON), "the IP", async || {
            let ip = ips.get("api-server-proxy").await?;
            ensure!(ip.spec.ip == address, "{} is not {address}", ip.spec.ip);
            Ok(())
        })
        .await
    };

    follows(services.create(&PostParams::default(), &service).await?).await?;
    services
        .delete("liqo-proxy", &DeleteParams::default())
        .await?;
    until(
        Deadline::after(SOON),
        "the deletion of the IP",
        async || {
            let ip = ips.get_opt("api-server-proxy").await?;
            ensure!(ip.is_none(), "{ip:?}");
            Ok(())
        },
    )
    .await?;
    follows(services.create(&PostParams::default(), &service).await?).await
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?)
}
