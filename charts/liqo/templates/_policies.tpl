{{/*
Returns the ValidatingAdmissionPolicyBinding that enforces a policy in all namespaces. Takes a dict: name, labels.
*/}}
{{- define "liqo.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "liqo.labels" .labels | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}

{{/*
Returns a CEL expression that is true if the number `variables.address` is in a CIDR. Takes the CIDR.
CEL's functions for addresses are not available in Kubernetes 1.30.
*/}}
{{- define "liqo.inCIDR" -}}
{{- $parts := splitList "/" . }}
{{- $address := 0 }}
{{- range splitList "." (first $parts) }}
{{- $address = add (mul $address 256) (int .) }}
{{- end }}
{{- $size := 1 }}
{{- range until (int (sub 32 (int (last $parts)))) }}
{{- $size = mul $size 2 }}
{{- end }}
{{- $first := mul (div $address $size) $size -}}
(variables.address >= {{ $first }} && variables.address < {{ add $first $size }})
{{- end }}

{{/*
Returns a CEL expression that is true if a namespace is a tenant namespace. A tenant namespace has the tenant label,
or is in the list networking.tenantNamespaces.
*/}}
{{- define "liqo.isTenantNamespace" -}}
(has(namespaceObject.metadata.labels) && 'liqo.io/tenant-namespace' in namespaceObject.metadata.labels && namespaceObject.metadata.labels['liqo.io/tenant-namespace'] == 'true')
{{- with .Values.networking.tenantNamespaces }} || namespaceObject.metadata.name in [{{ range $index, $name := . }}{{ if $index }}, {{ end }}'{{ $name }}'{{ end }}]{{ end }}
{{- end }}

{{/*
Returns a CEL list of the ClusterRoles that are bound to consumers.
*/}}
{{- define "liqo.consumerRoles" -}}
['liqo-remote-controlplane', 'liqo-virtual-kubelet-remote-clusterwide']
{{- end }}

{{/*
Returns a CEL expression that is true if a deletion keeps the dependents of the object.
*/}}
{{- define "liqo.orphansDependents" -}}
has(request.options) && ((has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan') || (has(request.options.orphanDependents) && request.options.orphanDependents))
{{- end }}

{{/*
Returns a CEL list of the ClusterRoles that are bound in offloaded namespaces.
*/}}
{{- define "liqo.offloadingRoles" -}}
['liqo-controller-manager-remote-namespace', 'liqo-virtual-kubelet-remote', 'liqo-virtual-kubelet-local-namespace']
{{- end }}

{{/*
Returns a CEL list of the ClusterRoles that are bound to virtual kubelets of this cluster.
*/}}
{{- define "liqo.kubeletRoles" -}}
['liqo-virtual-kubelet-local', 'liqo-virtual-kubelet-tenant', 'liqo-virtual-kubelet-node-lease', 'liqo-virtual-kubelet-authentication']
{{- end }}
