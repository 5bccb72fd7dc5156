//! Requests to the API server of one cluster.

mod access;
mod locate;
mod pages;

pub(crate) use access::{Flags, RemoteFlags};
pub(crate) use locate::{Installation, choose};
pub(crate) use pages::{list_all, list_by_fields, list_versioned};

use crate::failure;
use crate::global::Global;
use crate::manifest;
use anyhow::{Context as _, Result, anyhow, bail};
use control_api::labels;
use control_client::destination::Destinations;
use control_client::kubeconfig::RemoteConfig;
use control_client::transport::{ConfigError, Transport};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// Field manager of this program in server-side apply.
pub(crate) const FIELD_MANAGER: &str = "liqoctl";

/// Default namespace of an installation.
pub(crate) const DEFAULT_NAMESPACE: &str = "liqo";

/// A cluster with its API server, and the flags that apply to it.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// Client of the API server.
    pub(crate) client: Client,
    /// `local` or `remote`.
    pub(crate) side: &'static str,
    /// URL of the API server, without a slash at the end.
    pub(crate) url: String,
    /// Namespace of the objects that a command names, from the flag or the kubeconfig.
    pub(crate) namespace: String,
    /// Liqo's namespace, if a flag names it.
    liqo_namespace: Option<String>,
    /// Labels of every object that is created.
    extra_labels: Vec<(String, String)>,
    /// Annotations of every object that is created.
    extra_annotations: Vec<(String, String)>,
}

impl Cluster {
    /// Prepares a client for the cluster that the flags name. Sends no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be used.
    pub(crate) async fn open(global: &Global, flags: Flags<'_>) -> Result<Self> {
        let (client, url, namespace) = access::connect(&flags).await?;
        Ok(Self {
            client,
            side: flags.side,
            url,
            namespace: flags.namespace.map_or(namespace, ToOwned::to_owned),
            liqo_namespace: flags.liqo_namespace.map(ToOwned::to_owned),
            extra_labels: global.global_labels.clone(),
            extra_annotations: global.global_annotations.clone(),
        })
    }

    /// Returns the provider that a kubeconfig of this cluster's objects names. Sends no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be used.
    pub(crate) fn of_provider(
        config: &RemoteConfig,
        destinations: Destinations,
    ) -> Result<Self, ConfigError> {
        let config = config.as_ref();
        let transport = Transport::new(config, destinations)?;
        let url = config.cluster_url.to_string();
        Ok(Self {
            client: Client::new(transport, config.default_namespace.clone()),
            side: "remote",
            url: url.trim_end_matches('/').to_owned(),
            namespace: config.default_namespace.clone(),
            liqo_namespace: None,
            extra_labels: Vec::new(),
            extra_annotations: Vec::new(),
        })
    }

    /// Returns the cluster behind a listener of a test.
    #[cfg(test)]
    pub(crate) fn behind(front: &fake_apiserver::Front, side: &'static str) -> Self {
        let url = front.url().parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(url));
        Self {
            client: client.expect("a client"),
            side,
            url: format!("https://{side}:6443"),
            namespace: "default".to_owned(),
            liqo_namespace: None,
            extra_labels: Vec::new(),
            extra_annotations: Vec::new(),
        }
    }

    /// Returns the cluster with Liqo's namespace in a flag.
    #[cfg(test)]
    pub(crate) fn with_liqo_namespace(self, namespace: &str) -> Self {
        Self {
            liqo_namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Returns the cluster that the global flags name. Sends no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be used.
    pub(crate) async fn local(global: &Global) -> Result<Self> {
        Self::open(global, Flags::local(global)).await
    }

    /// Returns the cluster that the global flags name, for a command whose `--namespace` is Liqo's. Sends no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be used.
    pub(crate) async fn with_liqo(global: &Global) -> Result<Self> {
        Self::open(global, Flags::local(global).with_liqo_in_namespace()).await
    }

    /// Returns the name of the cluster in messages, with the URL of its API server.
    pub(crate) fn place(&self) -> String {
        format!("the {} cluster ({})", self.side, self.url)
    }

    /// Returns a function that adds `action`, such as "list Pods", and the cluster to an error.
    pub(crate) fn failed(&self, action: &str) -> impl FnOnce(kube::Error) -> anyhow::Error {
        let (action, place) = (action.to_owned(), self.place());
        move |error| failure::explain(&action, &place, &error)
    }

    /// Returns the installation, or none if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails, or if Liqo is not in the namespace that a flag names.
    pub(crate) async fn find_installation(&self) -> Result<Option<Installation>> {
        let selector = format!("{}={}", labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP);
        let everywhere = Api::<ConfigMap>::all(self.client.clone());
        let found = match list_all(&everywhere, &selector).await {
            Ok(found) => found,
            // Forbidden in all namespaces: try the expected one.
            Err(error) if failure::is_forbidden(&error) => {
                let namespace = self.expected_namespace();
                let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
                list_all(&api, &selector)
                    .await
                    .map_err(self.failed("find Liqo's cluster id"))?
            }
            Err(error) => return Err(self.failed("find Liqo's cluster id")(error)),
        };
        choose(&found, self.liqo_namespace.as_deref())
            .map_err(|reason| anyhow!("{reason} (in {})", self.place()))
    }

    /// Returns the installation.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if there is none.
    pub(crate) async fn installation(&self) -> Result<Installation> {
        self.find_installation().await?.with_context(|| {
            format!(
                "Liqo is not installed in {}: run `liqoctl install` with its kubeconfig first",
                self.place()
            )
        })
    }

    /// Returns the namespace in which Liqo is expected or will be installed.
    pub(crate) fn expected_namespace(&self) -> &str {
        self.liqo_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// Returns the UID of namespace `kube-system`, which identifies the cluster because the
    /// namespace cannot be deleted. Returns none if reading it is forbidden.
    ///
    /// # Errors
    ///
    /// Returns every other error of the API server.
    pub(crate) async fn identity(&self) -> Result<Option<String>> {
        let read = Api::<Namespace>::all(self.client.clone())
            .get("kube-system")
            .await;
        match read {
            Ok(namespace) => Ok(namespace.metadata.uid),
            Err(error) if failure::is_forbidden(&error) => Ok(None),
            Err(error) => Err(self.failed("read namespace kube-system")(error)),
        }
    }

    /// Lists the objects that the label selector selects. Returns an empty list if the API server
    /// does not serve the kind. Messages call the objects `noun`.
    ///
    /// # Errors
    ///
    /// Returns every other error of the API server.
    pub(crate) async fn list<K>(&self, api: &Api<K>, noun: &str, selector: &str) -> Result<Vec<K>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match list_all(api, selector).await {
            Ok(found) => Ok(found),
            Err(error) if failure::is_not_found(&error) => Ok(Vec::new()),
            Err(error) => Err(self.failed(&format!("list {noun}"))(error)),
        }
    }

    /// Adds the labels and annotations that global flags set to an object.
    pub(crate) fn with_metadata(&self, mut object: Value) -> Value {
        manifest::add_metadata(&mut object, &self.extra_labels, &self.extra_annotations);
        object
    }

    /// Creates or updates the object by server-side apply.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses it.
    pub(crate) async fn apply<K>(&self, api: &Api<K>, object: Value) -> Result<K>
    where
        K: Clone + Debug + DeserializeOwned + Serialize + Resource,
    {
        let object = self.with_metadata(object);
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"].as_str().map(ToOwned::to_owned);
        let Some(name) = name else {
            bail!("an object of kind {kind} has no name");
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patched = api.patch(&name, &params, &Patch::Apply(&object)).await;
        let written = match patched {
            // Upstream's roles of peering users permit no patches.
            Err(error) if failure::is_forbidden(&error) => {
                match self.create_or_replace(api, &name, &object).await {
                    Err(second) if failure::is_forbidden(&second) => Err(error),
                    other => other,
                }
            }
            other => other,
        };
        written.map_err(self.failed(&format!("apply {kind} {name}")))
    }

    /// Creates an object. Unlike the response to an Apply, a success proves that the object is new.
    ///
    /// # Errors
    ///
    /// Returns the error of the API server, which is a conflict if the object exists.
    pub(crate) async fn create<K>(&self, api: &Api<K>, object: &Value) -> kube::Result<K>
    where
        K: Clone + Debug + DeserializeOwned + Serialize + Resource,
    {
        api.create(&post_params(), &parse(object.clone())?).await
    }

    /// Creates an object, or replaces the one that exists.
    async fn create_or_replace<K>(
        &self,
        api: &Api<K>,
        name: &str,
        object: &Value,
    ) -> kube::Result<K>
    where
        K: Clone + Debug + DeserializeOwned + Serialize + Resource,
    {
        match self.create(api, object).await {
            Err(error) if failure::is_conflict(&error) => {}
            other => return other,
        }
        let existing = api.get(name).await?;
        let mut merged = serde_json::to_value(&existing).map_err(kube::Error::SerdeError)?;
        manifest::merge(&mut merged, object);
        api.replace(name, &post_params(), &parse(merged)?).await
    }

    /// Deletes an object. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn delete<K>(&self, api: &Api<K>, noun: &str, name: &str) -> Result<bool>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(true),
            Err(error) if failure::is_not_found(&error) => Ok(false),
            Err(error) => Err(self.failed(&format!("delete {noun} {name}"))(error)),
        }
    }

    /// Deletes an object that was read, and not another one of its name that was created since. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn delete_with_uid<K>(
        &self,
        api: &Api<K>,
        noun: &str,
        (name, uid): (&str, Option<&str>),
    ) -> Result<bool>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: uid.map(ToOwned::to_owned),
            resource_version: None,
        });
        match api.delete(name, &params).await {
            Ok(_) => Ok(true),
            Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => {
                Ok(false)
            }
            Err(error) => Err(self.failed(&format!("delete {noun} {name}"))(error)),
        }
    }

    /// Returns the object with this name, or none.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn get<K>(&self, api: &Api<K>, noun: &str, name: &str) -> Result<Option<K>>
    where
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        match api.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if failure::is_not_found(&error) => Ok(None),
            Err(error) => Err(self.failed(&format!("read {noun} {name}"))(error)),
        }
    }
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn parse<K: DeserializeOwned>(object: Value) -> kube::Result<K> {
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}
