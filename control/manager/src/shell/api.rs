//! Writes objects.

use crate::kind::{Key, Kind};
use crate::world::Stored as _;
use crate::write::{Action, Write};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use std::time::Duration;
use x25519_dalek::StaticSecret;

/// Who changes fields, as the API server notes it.
const FIELD_MANAGER: &str = "liqo-controller-manager";

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The API server.
pub(super) struct Api {
    client: Client,
}

/// What a change has come to.
pub(super) enum Answer {
    /// The object is so now.
    Written(DynamicObject),
    /// It was to be made, but one of its name is there.
    Present(DynamicObject),
    /// It is gone, or will be.
    Gone,
}

/// Why something was not written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server says no.
    #[error("{0}")]
    Refused(Box<kube::core::Status>),
    /// The API server was not reached, or its answer not understood.
    #[error("{0}")]
    Failed(kube::Error),
    /// The API server is silent.
    #[error("the API server has not answered within {} s", TIMEOUT.as_secs())]
    Silent,
}

impl Error {
    /// Returns what the API server has against the object, if that is what is wrong.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            // That this manager has no right to it is nothing against the object.
            Self::Refused(status) if matches!(status.code, 401 | 403) => None,
            Self::Refused(status) if matches!(status.code, 400..=499) => {
                Some(status.message.clone())
            }
            Self::Refused(_) | Self::Failed(_) | Self::Silent => None,
        }
    }
}

impl Error {
    /// Returns whether nothing can be made because the namespace goes, with all that asks for it.
    pub(super) fn is_of_dying_namespace(&self) -> bool {
        let reason = "NamespaceTerminating";
        let Self::Refused(status) = self else {
            return false;
        };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == reason)
    }
}

impl Api {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Changes an object. What is gone already is no error.
    pub(super) async fn write(&self, write: &Write) -> Result<Answer, Error> {
        let api = self.api(write.kind, &write.key);
        let name = &write.key.name;
        let patch_params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let result = match &write.action {
            Action::Create(object) => {
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                let object = parse(object)?;
                match timed(api.create(&params, &object)).await {
                    Err(Error::Refused(status)) if status.is_already_exists() => {
                        let present = timed(api.get_opt(name)).await?;
                        return Ok(present.map_or(Answer::Gone, Answer::Present));
                    }
                    result => result.map(Answer::Written),
                }
            }
            Action::Apply(object) => {
                let params = patch_params.force();
                timed(api.patch(name, &params, &Patch::Apply(object)))
                    .await
                    .map(Answer::Written)
            }
            Action::Merge(patch) => timed(api.patch(name, &patch_params, &Patch::Merge(patch)))
                .await
                .map(Answer::Written),
            Action::Status(patch) => {
                let patch = Patch::Merge(patch);
                timed(api.patch_status(name, &patch_params, &patch))
                    .await
                    .map(Answer::Written)
            }
            Action::Delete(uid) => {
                let params = DeleteParams::background().preconditions(Preconditions {
                    uid: uid.clone(),
                    resource_version: None,
                });
                // The watch tells when it is gone.
                timed(api.delete(name, &params)).await.map(|_| Answer::Gone)
            }
        };

        match result {
            Err(Error::Refused(status)) if is_moot(&write.action, &status) => Ok(Answer::Gone),
            result => result,
        }
    }

    /// Reads a Secret that no watch tells of.
    pub(super) async fn secret(&self, key: &Key) -> Result<Option<Secret>, Error> {
        let api: kube::Api<Secret> = kube::Api::namespaced(self.client.clone(), &key.namespace);
        let secret = timed(api.get_opt(&key.name)).await?;

        Ok(secret.map(|mut secret| {
            secret.strip();
            secret
        }))
    }

    fn api(&self, kind: Kind, key: &Key) -> kube::Api<DynamicObject> {
        let client = self.client.clone();
        if key.namespace.is_empty() {
            kube::Api::all_with(client, &kind.resource())
        } else {
            kube::Api::namespaced_with(client, &key.namespace, &kind.resource())
        }
    }
}

/// Returns 32 bytes that nobody can guess, fit to be a key.
pub(super) fn random() -> [u8; 32] {
    StaticSecret::random().to_bytes()
}

/// An object that is gone needs no change any more; the watch tells so.
fn is_moot(action: &Action, status: &kube::core::Status) -> bool {
    match action {
        Action::Delete(_) => status.is_not_found() || status.is_conflict(),
        Action::Merge(_) | Action::Status(_) => status.is_not_found(),
        Action::Create(_) | Action::Apply(_) => false,
    }
}

fn parse(object: &Value) -> Result<DynamicObject, Error> {
    serde_json::from_value(object.clone())
        .map_err(|error| Error::Failed(kube::Error::SerdeError(error)))
}

async fn timed<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Error::Refused(status)),
        Ok(Err(error)) => Err(Error::Failed(error)),
        Err(_) => Err(Error::Silent),
    }
}
