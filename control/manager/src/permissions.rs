//! What the manager asks of the API server, so that the chart grants no more.
//!
//! Cluster-wide (ClusterRole), because tenant namespaces come and go, and IP objects lie anywhere:
//!
//! | group | resource | verbs | why |
//! |---|---|---|---|
//! | `ipam.liqo.io` | `networks` | get list watch create patch delete | CIDRs of this cluster and its peers; those of peers are made and removed here |
//! | `ipam.liqo.io` | `networks/status` | patch | the CIDR that was given |
//! | `ipam.liqo.io` | `ips` | get list watch create patch delete | addresses of nodes and unknown sources; labels |
//! | `ipam.liqo.io` | `ips/status` | patch | the address that was given |
//! | `networking.liqo.io` | `configurations` | get list watch patch | `spec.local` |
//! | `networking.liqo.io` | `configurations/status` | patch | the peer's CIDRs as seen here |
//! | `networking.liqo.io` | `gatewayservers`, `gatewayclients`, `publickeies` | get list watch | what is asked for |
//! | `networking.liqo.io` | `gatewayservers/status`, `gatewayclients/status` | patch | end points, keys, conditions |
//! | `networking.liqo.io` | `connections` | get list watch create patch delete | one for each gateway whose peer's key is known |
//! | `networking.liqo.io` | `connections/status` | patch | the first value, Connecting |
//! | `core.liqo.io` | `foreignclusters` | get list watch create patch delete | the summary of a peer |
//! | `core.liqo.io` | `foreignclusters/status` | patch | the summary of a peer |
//! | `*.liqo.io` as above | `*/finalizers` of `configurations`, `gatewayservers`, `gatewayclients` (networking), `ips` (ipam) | update | owner references that block deletion, where the admission plugin asks for it |
//! | core | `nodes`, `namespaces` | get list watch | addresses of nodes; tenant namespaces (by label) |
//! | core | `services` | get list watch create patch delete | Services of IP objects, in their namespaces; the gateway's own in NS |
//! | `discovery.k8s.io` | `endpointslices` | get list watch create patch delete | end points of the Services of IP objects |
//! | `discovery.k8s.io` | `endpointslices/restricted` | create | OpenShift asks for it where end points are written by hand |
//! | core | `secrets` | get list watch create patch delete | the gateways' keys, in the tenant namespaces (watched by label only) |
//! | `events.k8s.io` | `events` | create patch | what people should know |
//! | `apps` | `deployments` | get list watch create patch delete | only with `--gateway-deployments`: `gw-<name>` in the tenant namespaces |
//!
//! In the namespace of Liqo (Role):
//!
//! | group | resource | resourceNames | verbs | why |
//! |---|---|---|---|---|
//! | core | `configmaps` | | get list watch | this cluster's id, found by label |
//! | core | `pods` | | get list watch | the gateway's replicas (watched by label only) |
//! | `apps` | `deployments` | `liqo-controller-manager` | get | itself, the owner of the IPs and Services it makes in this namespace, which go with it |
//! | `coordination.k8s.io` | `leases` | | create | the first manager makes the Lease |
//! | `coordination.k8s.io` | `leases` | `liqo-controller-manager` | get update | leader election |
//!
//! The Secret `liqo-gateway-keys` lies in that namespace; the rights on Secrets above cover it.
//! With `--leader-elect=false` the rights on Leases are not needed. Nothing else is used: no
//! `deletecollection`, no `update` of objects, no impersonation, no webhooks.
