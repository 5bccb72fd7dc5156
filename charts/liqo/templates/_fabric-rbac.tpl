{{/*
Rules that gateways and route agents share, for the whole cluster.
*/}}
{{- define "liqo.fabricClusterRules" -}}
# The nodes, their addresses and pod CIDRs.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# The pod prefixes per node of CNIs that allocate them themselves: Calico, Cilium.
- apiGroups: [crd.projectcalico.org]
  resources: [ipamblocks]
  verbs: [get, list, watch]
- apiGroups: [cilium.io]
  resources: [ciliumnodes]
  verbs: [get, list, watch]
# The CIDRs of this cluster, and the addresses that remote clusters may reach.
- apiGroups: [ipam.liqo.io]
  resources: [networks, ips]
  verbs: [get, list, watch]
# The labels of tenant namespaces: objects of a peer count nowhere else.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
# The peers, in tenant namespaces, whose names are not known in advance.
- apiGroups: [networking.liqo.io]
  resources: [configurations, gatewayservers, gatewayclients, publickeies]
  verbs: [get, list, watch]
{{- end }}

{{/*
Rules that both share in Liqo's namespace.
*/}}
{{- define "liqo.fabricNamespaceRules" -}}
# This cluster's ID. Its ConfigMap is found by label, as upstream does.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
# The gateway replicas. The names of EndpointSlices are not known in advance.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{/*
Binds the ClusterRole and the Role of a name to the ServiceAccount of that name. Takes a dict: root, account, labels.
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
