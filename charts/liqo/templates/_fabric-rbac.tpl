{{/*
Returns the cluster-wide rules of both gateways and route agents.
*/}}
{{- define "liqo.fabricClusterRules" -}}
# Reads the addresses and pod CIDRs of nodes.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# Reads the pod CIDRs of each node if Calico or Cilium allocates them instead of Kubernetes.
- apiGroups: [crd.projectcalico.org]
  resources: [ipamblocks]
  verbs: [get, list, watch]
- apiGroups: [cilium.io]
  resources: [ciliumnodes]
  verbs: [get, list, watch]
# Reads the CIDRs of this cluster, and the addresses that remote clusters may reach.
- apiGroups: [ipam.liqo.io]
  resources: [networks, ips]
  verbs: [get, list, watch]
# Reads the labels that identify tenant namespaces. A peer's objects in other namespaces are ignored.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
# Reads the objects of the peers. The rule is cluster-wide, because the names of tenant namespaces are
# not known in advance.
- apiGroups: [networking.liqo.io]
  resources: [configurations, gatewayservers, gatewayclients, publickeies]
  verbs: [get, list, watch]
{{- end }}

{{/*
Returns the rules of both gateways and route agents in Liqo's namespace.
*/}}
{{- define "liqo.fabricNamespaceRules" -}}
# Reads this cluster's ID from a ConfigMap, which is selected by label as in upstream Liqo.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
# Discovers the gateway replicas. The names of their EndpointSlices are not known in advance.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{/*
Returns bindings of the ClusterRole and the Role named `account` to the ServiceAccount named `account`.
Takes a dict: root, account, labels.
*/}}
{{- define "liqo.bindings" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .account }}
  labels:
    {{- include "liqo.labels" .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "liqo.labels" .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
