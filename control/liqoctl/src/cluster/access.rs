//! Prepares clients of API servers from flags and kubeconfig.

use crate::global::Global;
use anyhow::{Context as _, Result};
use clap::Args;
use control_client::transport;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};

/// The flags of one cluster.
pub(crate) struct Flags<'a> {
    /// `local` or `remote`.
    pub(crate) side: &'static str,
    /// The kubeconfig file.
    pub(crate) kubeconfig: Option<&'a Path>,
    /// Its context, cluster and user.
    pub(crate) selection: KubeConfigOptions,
    /// Namespace of the objects that a command names.
    pub(crate) namespace: Option<&'a str>,
    /// Liqo's namespace.
    pub(crate) liqo_namespace: Option<&'a str>,
}

/// Flags of the remote cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RemoteFlags {
    /// The kubeconfig file of the remote cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) remote_kubeconfig: Option<PathBuf>,

    /// The context of the remote kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    pub(crate) remote_context: Option<String>,

    /// The cluster of the remote kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    pub(crate) remote_cluster: Option<String>,

    /// The user of the remote kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    pub(crate) remote_user: Option<String>,

    /// The namespace of objects in the remote cluster.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) remote_namespace: Option<String>,

    /// Liqo's namespace in the remote cluster. Default: the one with the cluster ID.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) remote_liqo_namespace: Option<String>,
}

impl<'a> Flags<'a> {
    /// Returns the global flags.
    pub(crate) fn local(global: &'a Global) -> Self {
        Self {
            side: "local",
            kubeconfig: global.kubeconfig.as_deref(),
            selection: KubeConfigOptions {
                context: global.context.clone(),
                cluster: global.cluster.clone(),
                user: global.user.clone(),
            },
            namespace: global.namespace.as_deref(),
            liqo_namespace: global.liqo_namespace.as_deref(),
        }
    }

    /// Returns the flags of the remote cluster.
    pub(crate) fn remote(remote: &'a RemoteFlags) -> Self {
        Self {
            side: "remote",
            kubeconfig: remote.remote_kubeconfig.as_deref(),
            selection: KubeConfigOptions {
                context: remote.remote_context.clone(),
                cluster: remote.remote_cluster.clone(),
                user: remote.remote_user.clone(),
            },
            namespace: remote.remote_namespace.as_deref(),
            liqo_namespace: remote.remote_liqo_namespace.as_deref(),
        }
    }

    /// Returns the flags of a command whose `--namespace` is Liqo's, as upstream's `peer` and `install`.
    pub(crate) fn with_liqo_in_namespace(self) -> Self {
        Self {
            liqo_namespace: self.liqo_namespace.or(self.namespace),
            ..self
        }
    }
}

/// Returns a client, the server's URL and the kubeconfig's namespace.
///
/// # Errors
///
/// Returns an error with the remedy if there is no usable kubeconfig.
pub(crate) async fn connect(flags: &Flags<'_>) -> Result<(Client, String, String)> {
    let config = match flags.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("failed to read kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &flags.selection)
                .await
                .with_context(|| format!("failed to use kubeconfig {}", path.display()))?
        }
        None => ambient(flags).await?,
    };
    let url = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let client = transport::client(&config)
        .with_context(|| format!("failed to prepare a connection to {url}"))?;
    Ok((client, url.trim_end_matches('/').to_owned(), namespace))
}

/// Reads KUBECONFIG or the default file, else the credentials of the pod that runs this process.
async fn ambient(flags: &Flags<'_>) -> Result<Config> {
    let from_file = Config::from_kubeconfig(&flags.selection).await;
    let prefix = if flags.side == "remote" {
        "remote-"
    } else {
        ""
    };
    match from_file {
        Ok(config) => Ok(config),
        Err(error) => match Config::incluster() {
            Ok(config) => Ok(config),
            Err(_) => Err(error).with_context(|| {
                format!(
                    "no usable kubeconfig for the {} cluster: name one with --{prefix}kubeconfig",
                    flags.side
                )
            }),
        },
    }
}
