//! The components of a node and their command lines. All functions are pure.

use super::Plan;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The folder of certificates inside a node.
const PKI: &str = "/etc/kubernetes/pki";

/// The file that exists once the Node objects exist. If a kubelet registered earlier, it would
/// create a Node object without a pod CIDR.
pub const REGISTERED: &str = "/var/lib/lab/registered";

/// The path of containerd's socket.
pub const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// A program that runs from the start to the end of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The name of the component and of its log.
    pub name: &'static str,
    /// The program, as a name in the node's `PATH` or as a path.
    pub program: &'static str,
    /// The arguments after the program's name.
    pub args: Vec<String>,
    /// The conditions for the component's first start.
    pub after: Vec<Condition>,
}

/// A condition that must hold before a component starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A file or a socket at this path exists.
    Path(PathBuf),
    /// A server at this address accepts connections.
    Listens(SocketAddr),
}

/// Returns all components of a node, in the order of their start.
pub fn all(plan: &Plan) -> Vec<Component> {
    let mut components = vec![containerd()];
    if plan.node.control_plane {
        components.extend([etcd(plan), api_server(plan)]);
        components.extend([
            controller_manager(plan),
            scheduler(plan),
            load_balancer(plan),
        ]);
        if plan.spec.hollow > 0 {
            components.push(kwok());
        }
    }
    components.push(kubelet(plan));
    if plan.spec.kube_proxy.mode().is_some() {
        components.push(component(
            "kube-proxy",
            ["--config=/etc/kubernetes/proxy.yaml".to_owned()],
            [Condition::Path(REGISTERED.into())],
        ));
    }

    components
}

fn containerd() -> Component {
    let args = ["--log-level", "warn"].map(str::to_owned);
    component("containerd", args, [])
}

/// Returns etcd. etcd runs without fsync, since the data need not survive a crash of the machine.
fn etcd(plan: &Plan) -> Component {
    let client = "http://127.0.0.1:2379";
    let args = [
        format!("--name={}", plan.node.name),
        "--data-dir=/var/lib/etcd".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
    ];
    component("etcd", args, [])
}

fn api_server(plan: &Plan) -> Component {
    let mut args = vec![
        format!("--advertise-address={}", plan.node.ip),
        "--secure-port=6443".to_owned(),
        "--allow-privileged".to_owned(),
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--client-ca-file={PKI}/ca.crt"),
        format!("--tls-cert-file={PKI}/apiserver.crt"),
        format!("--tls-private-key-file={PKI}/apiserver.key"),
        format!("--kubelet-certificate-authority={PKI}/ca.crt"),
        format!("--kubelet-client-certificate={PKI}/apiserver-kubelet-client.crt"),
        format!("--kubelet-client-key={PKI}/apiserver-kubelet-client.key"),
        "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={PKI}/sa.pub"),
        format!("--service-account-signing-key-file={PKI}/sa.key"),
        format!("--service-cluster-ip-range={}", service_cidrs(plan)),
        format!("--requestheader-client-ca-file={PKI}/front-proxy-ca.crt"),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        format!("--proxy-client-cert-file={PKI}/front-proxy-client.crt"),
        format!("--proxy-client-key-file={PKI}/front-proxy-client.key"),
    ];
    if plan.spec.kube_proxy.mode().is_none() {
        // Without kube-proxy, ClusterIPs are unreachable from the node. The API server therefore
        // connects to the endpoints of aggregated API servers.
        args.push("--enable-aggregator-routing".to_owned());
    }
    component("kube-apiserver", args, [])
}

fn controller_manager(plan: &Plan) -> Component {
    let config = format!("{PKI}/controller-manager.conf");
    let mut args = vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--leader-elect=false".to_owned(),
        "--allocate-node-cidrs".to_owned(),
        format!("--cluster-cidr={}", pod_cidrs(plan)),
        format!("--service-cluster-ip-range={}", service_cidrs(plan)),
        format!("--cluster-name={}", plan.spec.name),
        "--use-service-account-credentials".to_owned(),
        "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
        format!("--root-ca-file={PKI}/ca.crt"),
        format!("--client-ca-file={PKI}/ca.crt"),
        format!("--requestheader-client-ca-file={PKI}/front-proxy-ca.crt"),
        format!("--cluster-signing-cert-file={PKI}/ca.crt"),
        format!("--cluster-signing-key-file={PKI}/ca.key"),
        format!("--service-account-private-key-file={PKI}/sa.key"),
        "--bind-address=127.0.0.1".to_owned(),
        // The default of 20 requests per second delays a new cluster by seconds.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        // The default is a folder in /usr, which is read-only in a node.
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins".to_owned(),
        format!("--node-cidr-mask-size-ipv4={}", plan.spec.node_prefix_len()),
    ];
    if !plan.spec.ipv6 {
        args.pop();
        args.push(format!(
            "--node-cidr-mask-size={}",
            plan.spec.node_prefix_len()
        ));
    }
    component("kube-controller-manager", args, [api_is_there()])
}

fn scheduler(_: &Plan) -> Component {
    let config = format!("{PKI}/scheduler.conf");
    let args = [
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ];
    component("kube-scheduler", args, [api_is_there()])
}

/// Returns the laboratory's load balancer, which is a command of the same program as process 1.
fn load_balancer(plan: &Plan) -> Component {
    let [a, b, c] = plan.load_balancers;
    let args = [
        "load-balancer".to_owned(),
        format!("--kubeconfig={PKI}/admin.conf"),
        format!("--prefix={a}.{b}.{c}"),
    ];
    Component {
        program: "/proc/1/exe",
        ..component("load-balancer", args, [api_is_there()])
    }
}

/// Returns kwok, which reports hollow nodes as ready, and their pods as running. kwok exits if its
/// configuration has no stages.
fn kwok() -> Component {
    let script = format!(
        "kwok-stages >/etc/kubernetes/stages.yaml && exec kwok --kubeconfig={PKI}/admin.conf \
         --config=/etc/kubernetes/stages.yaml --manage-all-nodes=false \
         --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"
    );
    Component {
        program: "sh",
        ..component(
            "kwok",
            ["-c".to_owned(), script],
            [api_is_there(), Condition::Path(REGISTERED.into())],
        )
    }
}

fn kubelet(plan: &Plan) -> Component {
    let node = &plan.node;
    let ips: Vec<_> = node.ips().iter().map(ToString::to_string).collect();
    let args = [
        "--config=/etc/kubernetes/kubelet.yaml".to_owned(),
        format!("--kubeconfig={PKI}/kubelet-{}.conf", node.name),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", ips.join(",")),
    ];
    let after = [REGISTERED, CONTAINERD].map(|path| Condition::Path(path.into()));
    component("kubelet", args, after)
}

fn api_is_there() -> Condition {
    Condition::Listens(([127, 0, 0, 1], 6443).into())
}

fn component(
    name: &'static str,
    args: impl IntoIterator<Item = String>,
    after: impl IntoIterator<Item = Condition>,
) -> Component {
    Component {
        name,
        program: name,
        args: args.into_iter().collect(),
        after: after.into_iter().collect(),
    }
}

fn pod_cidrs(plan: &Plan) -> String {
    let v4 = plan.spec.pod_cidr;
    if plan.spec.ipv6 {
        format!("{v4},{}", plan.spec.pod_cidr_v6())
    } else {
        v4.to_string()
    }
}

fn service_cidrs(plan: &Plan) -> String {
    let v4 = plan.spec.service_cidr;
    if plan.spec.ipv6 {
        format!("{v4},{}", plan.spec.service_cidr_v6())
    } else {
        v4.to_string()
    }
}
