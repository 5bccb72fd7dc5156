//! Certificates, keys and kubeconfigs of a cluster, like those of kubeadm.
//!
//! All keys are ECDSA P-256. Creating all keys of a cluster takes a few milliseconds.

use crate::spec::{NodeSpec, Spec};
use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// The time by which `notBefore` of a certificate precedes its creation, since clocks may differ.
const BACKDATED: Duration = Duration::minutes(5);

/// The group whose members have all rights in a cluster.
const MASTERS: &str = "system:masters";

/// A folder of certificates and keys, in files called `NAME.crt` and `NAME.key`.
#[derive(Clone, Debug)]
pub struct Pki {
    folder: PathBuf,
    lifetime: Duration,
}

/// The name and the group by which the API server identifies a client.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The common name of the certificate.
    pub user: &'a str,
    /// The organization of the certificate.
    pub group: Option<&'a str>,
}

impl Pki {
    /// Uses the certificates in `folder`. New certificates are valid for `lifetime`.
    pub fn new(folder: impl Into<PathBuf>, lifetime: std::time::Duration) -> Self {
        Self {
            folder: folder.into(),
            lifetime: Duration::try_from(lifetime).unwrap_or(Duration::MAX),
        }
    }

    /// Returns the folder of certificates and keys.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the certificates and the kubeconfigs of all components.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file that could not be written.
    pub fn create(&self, spec: &Spec, nodes: &[NodeSpec]) -> Result<()> {
        self.authorities(&spec.name)?;
        self.authority("front-proxy-ca", &format!("{}-front-proxy", spec.name))?;

        for (name, user, group) in [
            ("admin", "admin", Some(MASTERS)),
            (
                "apiserver-kubelet-client",
                "kube-apiserver-kubelet-client",
                Some(MASTERS),
            ),
            ("controller-manager", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
            ("proxy", "system:kube-proxy", None),
        ] {
            self.client("ca", name, Subject { user, group })?;
        }
        let front_proxy = Subject {
            user: "front-proxy-client",
            group: None,
        };
        self.client("front-proxy-ca", "front-proxy-client", front_proxy)?;
        self.server("apiserver", "kube-apiserver", api_names(spec, nodes))?;
        for user in ["admin", "controller-manager", "scheduler", "proxy"] {
            self.write_kubeconfig(spec, nodes, user)?;
        }
        self.complete(spec, nodes)
    }

    /// Creates the folder, the certificate authority `ca` of the cluster, and the keys `sa` of
    /// service account tokens.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file that could not be written.
    pub fn authorities(&self, cluster: &str) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("failed to create {}", self.folder.display()))?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700))
            .context("failed to restrict the folder of keys")?;

        self.authority("ca", cluster)?;
        let service_account = key()?;
        self.write("sa.key", &service_account.serialize_pem())?;
        self.write("sa.pub", &service_account.public_key_pem())
    }

    /// Creates the certificates of kubelets that have none yet.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pki::create`].
    pub fn complete(&self, spec: &Spec, nodes: &[NodeSpec]) -> Result<()> {
        for node in nodes {
            let user = format!("system:node:{}", node.name);
            let name = format!("kubelet-{}", node.name);
            if self.folder.join(format!("{name}.conf")).exists() {
                continue;
            }
            let kubelet = Subject {
                user: &user,
                group: Some("system:nodes"),
            };
            self.client("ca", &name, kubelet)?;
            let ips = node.ips().into_iter().map(|ip| ip.to_string());
            let names = [node.name.clone()].into_iter().chain(ips).collect();
            self.server(&format!("{name}-serving"), &user, names)?;
            self.write_kubeconfig(spec, nodes, &name)?;
        }

        Ok(())
    }

    fn write_kubeconfig(&self, spec: &Spec, nodes: &[NodeSpec], user: &str) -> Result<()> {
        let text = self.kubeconfig(&spec.name, &server(nodes), user)?;
        self.write(&format!("{user}.conf"), &text)
    }

    /// Creates a client certificate signed by the certificate authority `ca`.
    ///
    /// # Errors
    ///
    /// Returns an error if the authority is missing, or if a file cannot be written.
    pub fn client(&self, ca: &str, name: &str, subject: Subject<'_>) -> Result<()> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.signed(ca, name, subject, params)
    }

    /// Creates a server certificate for `names`, which are host names or IP addresses.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pki::client`], and an error if a name is invalid.
    pub fn server(&self, name: &str, user: &str, names: Vec<String>) -> Result<()> {
        let mut params =
            CertificateParams::new(names).context("the name of a server is invalid")?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let group = user.starts_with("system:node:").then_some("system:nodes");
        self.signed("ca", name, Subject { user, group }, params)
    }

    /// Returns a kubeconfig for the client `user`, whose certificate is in this folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificate or the key is missing.
    pub fn kubeconfig(&self, cluster: &str, server: &str, user: &str) -> Result<String> {
        let data = |file: &str| -> Result<ByteString> { Ok(ByteString(self.read(file)?.into())) };
        let entry = format!("{cluster}-{user}");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {
                "server": server,
                "certificate-authority-data": data("ca.crt")?,
            }}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": entry}}],
            "users": [{"name": entry, "user": {
                "client-certificate-data": data(&format!("{user}.crt"))?,
                "client-key-data": data(&format!("{user}.key"))?,
            }}],
        });

        serde_saphyr::to_string(&config).context("failed to write a kubeconfig")
    }

    fn authority(&self, file: &str, name: &str) -> Result<()> {
        let key = key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(Subject {
            user: name,
            group: None,
        });
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        // The authority must outlive the certificates that it signs.
        params.not_before = OffsetDateTime::now_utc() - BACKDATED;
        params.not_after = params.not_before + Duration::days(3650);
        let certificate = params
            .self_signed(&key)
            .with_context(|| format!("failed to sign the authority {name}"))?;
        self.write_pair(file, &certificate, &key)
    }

    fn signed(
        &self,
        ca: &str,
        name: &str,
        subject: Subject<'_>,
        mut params: CertificateParams,
    ) -> Result<()> {
        let issuer_key = KeyPair::from_pem(&self.read(&format!("{ca}.key"))?)
            .with_context(|| format!("the key of the authority {ca} is damaged"))?;
        let issuer = Issuer::from_ca_cert_pem(&self.read(&format!("{ca}.crt"))?, issuer_key)
            .with_context(|| format!("the certificate of the authority {ca} is damaged"))?;
        params.distinguished_name = distinguished(subject);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.is_ca = IsCa::ExplicitNoCa;
        let now = OffsetDateTime::now_utc();
        params.not_before = now - BACKDATED;
        params.not_after = now.saturating_add(self.lifetime);

        let key = key()?;
        let certificate = params
            .signed_by(&key, &issuer)
            .with_context(|| format!("failed to sign the certificate {name}"))?;
        self.write_pair(name, &certificate, &key)
    }

    fn write_pair(&self, name: &str, certificate: &Certificate, key: &KeyPair) -> Result<()> {
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        use std::io::Write as _;

        let path = self.folder.join(file);
        fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

/// Returns the URL of the API server in a cluster with these nodes.
pub fn server(nodes: &[NodeSpec]) -> String {
    let ip = nodes.first().map(|node| node.ip.to_string());
    format!("https://{}:6443", ip.unwrap_or_default())
}

/// Returns all names and addresses of the API server, inside and outside of the cluster.
fn api_names(spec: &Spec, nodes: &[NodeSpec]) -> Vec<String> {
    let inside = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ];
    let ips = nodes.first().map(NodeSpec::ips).unwrap_or_default();

    inside
        .map(str::to_owned)
        .into_iter()
        .chain([spec.api_service().to_string(), spec.node_name(0)])
        .chain(ips.into_iter().map(|ip| ip.to_string()))
        .collect()
}

fn distinguished(subject: Subject<'_>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(group) = subject.group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, subject.user);
    name
}

fn key() -> Result<KeyPair> {
    KeyPair::generate().context("failed to generate a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_holds_all_that_a_client_needs() {
        let folder = std::env::temp_dir().join(format!("liqo-lab-pki-{}", std::process::id()));
        let pki = Pki::new(&folder, std::time::Duration::from_secs(600));
        let spec = Spec::new("rome");
        let nodes = NodeSpec::all(&spec, 1, "172.18.0.0/16".parse().unwrap());

        pki.create(&spec, &nodes).unwrap();
        let text = fs::read_to_string(folder.join("admin.conf")).unwrap();
        let mode = fs::metadata(folder.join("ca.key"))
            .unwrap()
            .permissions()
            .mode();
        fs::remove_dir_all(&folder).unwrap();

        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://172.18.1.2:6443"));
        assert_eq!(config.current_context.as_deref(), Some("rome"));
        assert_eq!(mode & 0o777, 0o600);
    }
}
