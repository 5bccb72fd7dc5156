{{/*
What gateways and route agents both read, of the whole cluster.
*/}}
{{- define "liqo.fabricClusterRules" -}}
# Which nodes there are, their addresses and the pods' prefixes on them.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# Which prefixes a CNI has given to which node, where it does so itself: Calico, Cilium.
- apiGroups: [crd.projectcalico.org]
  resources: [ipamblocks]
  verbs: [get, list, watch]
- apiGroups: [cilium.io]
  resources: [ciliumnodes]
  verbs: [get, list, watch]
# The prefixes of this cluster and the single addresses that remote clusters may reach.
- apiGroups: [ipam.liqo.io]
  resources: [networks, ips]
  verbs: [get, list, watch]
# The peers, in tenant namespaces, which come and go.
- apiGroups: [networking.liqo.io]
  resources: [configurations, gatewayservers, gatewayclients, publickeies]
  verbs: [get, list, watch]
{{- end }}

{{/*
What both read in Liqo's namespace.
*/}}
{{- define "liqo.fabricNamespaceRules" -}}
# This cluster's ID, found by label as upstream's.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
# Which gateway replicas there are. The names of slices are not known beforehand.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{/*
Binds both roles of a name to the ServiceAccount of that name. Takes a dict: root, account, labels.
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
