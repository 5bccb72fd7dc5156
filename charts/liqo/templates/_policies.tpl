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
['liqo-controller-manager-remote-namespace', 'liqo-virtual-kubelet-remote', 'liqo-virtual-kubelet-remote-extra', 'liqo-virtual-kubelet-local-namespace', 'liqo-virtual-kubelet-local-extra']
{{- end }}

{{/*
Returns a CEL list of the ClusterRoles that are bound to virtual kubelets of this cluster.
*/}}
{{- define "liqo.kubeletRoles" -}}
['liqo-virtual-kubelet-local', 'liqo-virtual-kubelet-tenant', 'liqo-virtual-kubelet-node-lease', 'liqo-virtual-kubelet-authentication']
{{- end }}

{{/*
Returns a CEL list of texts. Takes a list of maps with the key `name`.
*/}}
{{- define "liqo.names" -}}
[{{ range $index, $it := . }}{{ if $index }}, {{ end }}'{{ $it.name }}'{{ end }}]
{{- end }}

{{/*
Returns a CEL list of the types of Services that consumers have without a TenantPolicy.
*/}}
{{- define "liqo.serviceTypes" -}}
['ClusterIP', 'NodePort', 'LoadBalancer']
{{- end }}

{{/*
Returns a CEL list of the annotations that consumers may set on Ingresses.
*/}}
{{- define "liqo.ingressAnnotations" -}}
{{- $names := list }}
{{- range list "backend-protocol" "force-ssl-redirect" "proxy-body-size" "proxy-connect-timeout" "proxy-read-timeout" "proxy-send-timeout" "rewrite-target" "ssl-redirect" "use-regex" }}
{{- $names = append $names (printf "'nginx.ingress.kubernetes.io/%s'" .) }}
{{- end -}}
[{{ join ", " $names }}]
{{- end }}

{{/*
Returns the constraints of a policy about Ingresses and core resources that consumers write. Takes a list of the resources.
*/}}
{{- define "liqo.reflectedObjects" -}}
matchConstraints:
  namespaceSelector:
    matchExpressions:
      - {key: liqo.io/remote-cluster-id, operator: Exists}
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [{{ join ", " . }}]
      scope: "*"
    - apiGroups: [networking.k8s.io]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE]
      resources: [ingresses]
      scope: "*"
{{- end }}

{{/*
Returns the variables of a policy about objects that consumers write: the kind of the object is known only if a virtual
kubelet of the namespace's consumer writes it.
*/}}
{{- define "liqo.reflectionVariables" -}}
- name: resource
  expression: >-
    namespaceObject.metadata.labels['liqo.io/remote-cluster-id'] in request.userInfo.groups ? request.resource.resource : ''
- name: isService
  expression: "variables.resource == 'services'"
- name: isIngress
  expression: "variables.resource == 'ingresses'"
- name: isClaim
  expression: "variables.resource == 'persistentvolumeclaims'"
- name: tenantPolicy
  expression: >-
    'liqo.io/tenant-policy' in namespaceObject.metadata.labels
    ? namespaceObject.metadata.labels['liqo.io/tenant-policy'] : ''
- name: spec
  expression: "has(object.spec) ? dyn(object.spec) : dyn({})"
{{- end }}
