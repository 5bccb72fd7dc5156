//! The control plane that all tests share.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};
use kubernetes_lab::control_plane::{ControlPlane, Options};
use kubernetes_lab::suite::{self, Shared, block_on};
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use kubernetes_lab::wait::{Deadline, SOON, until};
pub(crate) use kubernetes_lab::{parallel, serial};

pub(crate) type Suite = suite::Suite<Fixture>;

/// The namespace in which the rights of Liqo's chart are installed.
pub(crate) const LIQO: &str = "liqo";

/// The environment variable that `cargo xtask test --kubernetes` sets to the folder of the chart.
const CHART: &str = "LIQO_LAB_CHART";

/// A control plane with the CRDs and the rights of Liqo's chart.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) control_plane: ControlPlane,
}

impl Shared for Fixture {
    const NAMES: &'static [&'static str] = &[];

    fn make() -> Result<Self> {
        let chart = chart()?;
        let options = Options::new(suite::artifacts()?);
        block_on(async {
            let start = Instant::now();
            let control_plane = ControlPlane::start(options).await?;
            let ready = start.elapsed().as_secs_f64();
            control_plane.install_crds(&chart).await?;
            control_plane.install_rights(&chart, LIQO).await?;
            let installed = start.elapsed().as_secs_f64();
            eprintln!(
                "the API server is ready after {ready:.1} s, the chart after {installed:.1} s"
            );

            Ok(Self { control_plane })
        })
    }

    fn restore(&self) -> Result<()> {
        block_on(self.control_plane.recover())
    }

    fn diagnose(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).context("failed to create the folder of logs")?;
        for entry in fs::read_dir(self.control_plane.folder())? {
            let file = entry?.path();
            if let Some(name) = file.file_name().filter(|_| file.is_file()) {
                fs::copy(&file, folder.join(name)).context("failed to copy a log")?;
            }
        }

        Ok(())
    }

    /// Longer than the longest test: the network is cut for five minutes, before and after which ten thousand objects are reflected.
    fn limit() -> Duration {
        Duration::from_secs(1_800)
    }
}

/// Returns the folder of the chart.
pub(crate) fn chart() -> Result<PathBuf> {
    let chart = env::var_os(CHART).map(PathBuf::from);
    chart.with_context(|| format!("{CHART} is not set"))
}

impl Fixture {
    /// Creates a namespace, and returns a client with all rights. The namespace is never deleted,
    /// since the control plane ends after the tests.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Client> {
        let client = self.control_plane.client().await?;
        let api: Api<Namespace> = Api::all(client.clone());
        let object = json!({"metadata": {"name": name}});
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;

        Ok(client)
    }

    /// Creates a namespace, and returns its ConfigMaps.
    pub(crate) async fn config_maps(&self, namespace: &str) -> Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.namespace(namespace).await?, namespace))
    }
}

/// Returns a ConfigMap with this metadata.
pub(crate) fn config_map(metadata: &Value) -> Result<ConfigMap> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"},
    });
    serde_json::from_value(object).context("the ConfigMap is invalid")
}

/// Creates a ConfigMap, and returns it as stored.
pub(crate) async fn create(api: &Api<ConfigMap>, metadata: &Value) -> Result<ConfigMap> {
    let object = config_map(metadata)?;
    api.create(&PostParams::default(), &object)
        .await
        .context("failed to create a ConfigMap")
}

/// Returns the HTTP status code of a request that the API server must refuse.
pub(crate) fn code<T>(outcome: kube::Result<T>) -> Result<u16> {
    match outcome {
        Ok(_) => anyhow::bail!("the request was accepted"),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error).context("no response"),
    }
}
