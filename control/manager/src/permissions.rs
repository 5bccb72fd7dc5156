//! The rights that the manager uses. A test of the chart compares these tables with its roles.
//!
//! ClusterRole `liqo-controller-manager`, in all namespaces, because tenant namespaces come and go, and
//! IP objects lie anywhere:
//!
//! | group | resources | names | verbs | why |
//! |---|---|---|---|---|
//! | `ipam.liqo.io` | `networks`, `ips` | | get list watch create patch delete | CIDRs of this cluster and of peers; addresses of nodes, of unknown sources and those that users map |
//! | `ipam.liqo.io` | `networks/status`, `ips/status` | | patch | the CIDR or address that was given |
//! | `networking.liqo.io` | `configurations` | | get list watch patch | `spec.local` |
//! | `networking.liqo.io` | `gatewayservers`, `gatewayclients`, `publickeies` | | get list watch | the desired peerings |
//! | `networking.liqo.io` | `configurations/status`, `gatewayservers/status`, `gatewayclients/status`, `connections/status` | | patch | the peer's CIDRs as seen here, end points, keys, conditions; a Connection's first value |
//! | `networking.liqo.io` | `connections` | | get list watch create patch delete | one for each gateway whose peer's key is known |
//! | `core.liqo.io` | `foreignclusters` | | get list watch create patch delete | the summary of a peer |
//! | `core.liqo.io` | `foreignclusters/status` | | patch | the summary of a peer |
//! | `networking.liqo.io` | `configurations/finalizers`, `gatewayservers/finalizers`, `gatewayclients/finalizers` | | update | owner references that block deletion, where an admission plugin asks for it |
//! | `ipam.liqo.io` | `ips/finalizers` | | update | likewise |
//! | core | `nodes`, `namespaces` | | get list watch | addresses of nodes; the labels of namespaces |
//! | core | `services` | | get list watch create patch delete | Services of IP objects, in their namespaces; the gateway's own in Liqo's |
//! | `discovery.k8s.io` | `endpointslices` | | get list watch create patch delete | end points of the Services of IP objects |
//! | `discovery.k8s.io` | `endpointslices/restricted` | | create | OpenShift asks for it where end points are written by hand |
//! | `rbac.authorization.k8s.io` | `clusterroles` | `liqo-controller-manager-tenant` | bind | its own rights in a tenant namespace, below |
//! | `rbac.authorization.k8s.io` | `rolebindings` | | create | likewise; RBAC cannot limit the name of what is created |
//! | `rbac.authorization.k8s.io` | `rolebindings` | `liqo-controller-manager-tenant` | get list watch patch delete | likewise |
//! | `events.k8s.io` | `events` | | create patch | what people should know |
//! | `apps` | `deployments` | | get list watch | only with `--gateway-deployments` |
//!
//! ClusterRole `liqo-controller-manager-tenant`, which the manager binds in each tenant namespace:
//!
//! | group | resources | names | verbs | why |
//! |---|---|---|---|---|
//! | core | `secrets` | | get list watch create patch delete | the gateways' keys: their own, and those that users name |
//! | `apps` | `deployments` | | create patch delete | only with `--gateway-deployments`: `gw-<name>` |
//!
//! Role `liqo-controller-manager`, in the namespace of Liqo:
//!
//! | group | resources | names | verbs | why |
//! |---|---|---|---|---|
//! | core | `configmaps` | | get list watch | this cluster's id, found by label |
//! | core | `pods` | | get list watch | the gateway's replicas, found by label |
//! | core | `secrets` | | create | all private keys, for the gateways |
//! | core | `secrets` | `liqo-gateway-keys` | get list watch patch | likewise |
//! | `apps` | `deployments` | `liqo-controller-manager` | get | itself, the owner of the IPs and Services it makes in this namespace, which go with it |
//! | `coordination.k8s.io` | `leases` | | create | the first manager makes the Lease |
//! | `coordination.k8s.io` | `leases` | `liqo-controller-manager` | get update patch | leader election |
//!
//! With `--leader-elect=false` the rights on Leases are not needed. Nothing else is used: no
//! `deletecollection`, no `update` of objects, no impersonation, no webhooks, no `escalate`.
