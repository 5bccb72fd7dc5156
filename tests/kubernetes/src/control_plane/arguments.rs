//! The command lines of the components. All functions are pure.

use super::Options;
use std::path::Path;

/// The folders and addresses of a control plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths<'a> {
    /// The folder of certificates and keys.
    pub(super) pki: &'a Path,
    /// The folder of etcd's data.
    pub(super) data: &'a Path,
    /// The file with the audit policy.
    pub(super) audit_policy: &'a Path,
    /// The file to which the API server appends audit events.
    pub(super) audit_log: &'a Path,
    /// The URL of etcd.
    pub(super) etcd: &'a str,
    /// The TCP port of the API server on 127.0.0.1.
    pub(super) port: u16,
}

/// Returns the arguments of etcd. etcd runs without fsync, since the data need not survive a crash
/// of the machine.
pub(super) fn etcd(paths: Paths<'_>) -> Vec<String> {
    let url = paths.etcd;
    vec![
        "--name=control-plane".to_owned(),
        format!("--data-dir={}", paths.data.display()),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        // There are no other members, so the kernel may choose the port.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The default election takes a second. Without other members, it needs no longer time-outs.
        "--heartbeat-interval=10".to_owned(),
        "--election-timeout=100".to_owned(),
    ]
}

/// Returns the arguments of kube-apiserver.
pub(super) fn api_server(options: &Options, paths: Paths<'_>) -> Vec<String> {
    let pki = paths.pki.display();
    let mut args = vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // A loopback address is invalid in the endpoints of the Service `kubernetes`.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={}", paths.port),
        format!("--etcd-servers={}", paths.etcd),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged".to_owned(),
        format!("--client-ca-file={pki}/ca.crt"),
        format!("--tls-cert-file={pki}/apiserver.crt"),
        format!("--tls-private-key-file={pki}/apiserver.key"),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={pki}/sa.pub"),
        format!("--service-account-signing-key-file={pki}/sa.key"),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        format!("--watch-cache={}", options.watch_cache),
        format!("--event-ttl={}s", options.event_ttl.as_secs().max(1)),
    ];
    if options.audit {
        args.extend([
            format!("--audit-policy-file={}", paths.audit_policy.display()),
            format!("--audit-log-path={}", paths.audit_log.display()),
        ]);
    }

    args
}

/// Returns the arguments of kube-controller-manager.
pub(super) fn controller_manager(options: &Options, paths: Paths<'_>) -> Vec<String> {
    let pki = paths.pki.display();
    vec![
        format!("--kubeconfig={pki}/controller-manager.conf"),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials".to_owned(),
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--cluster-signing-cert-file={pki}/ca.crt"),
        format!("--cluster-signing-key-file={pki}/ca.key"),
        format!(
            "--cluster-signing-duration={}s",
            options.signing_duration.as_secs()
        ),
        format!("--service-account-private-key-file={pki}/sa.key"),
        // The metrics are not used, and a port could collide with another control plane's.
        "--secure-port=0".to_owned(),
        // The default of 20 requests per second delays the first objects by seconds.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}
