{{/*
Returns the labels by which selectors select the pods of a component. They must never change, because selectors
are immutable. Takes a dict: name, component.
*/}}
{{- define "liqo.selectorLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: liqo-{{ .name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: liqo
{{- end }}

{{/*
Returns the labels of an object. Pods do not have these labels, because a changed version label would restart
them. Takes a dict: root, name, component.
*/}}
{{- define "liqo.labels" -}}
{{ include "liqo.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{/*
Returns the full reference of an image. Takes a dict: root, image.
*/}}
{{- define "liqo.image" -}}
{{- if hasPrefix "ghcr.io/liqotech/" .image.name }}
  {{- fail (printf "%s: an image of upstream's programs, whose arguments differ from this project's: omit the name, or give a copy of this project's image" .image.name) }}
{{- end -}}
{{ .image.name }}:{{ .image.version | default .root.Values.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/*
Converts a CIDR to a part of an object's name: 10.0.0.0/16 becomes 10-0-0-0-16.
*/}}
{{- define "liqo.escapedCIDR" -}}
{{ . | replace "." "-" | replace ":" "-" | replace "/" "-" }}
{{- end }}

{{/*
Returns the annotations by which Prometheus discovers scrape targets. Takes a dict: root, port.
*/}}
{{- define "liqo.scrapeAnnotations" -}}
{{- if and .root.Values.metrics.enabled (not .root.Values.metrics.prometheusOperator.enabled) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/*
Returns environment variables with the settings that must be equal for gateways and route agents.
*/}}
{{- define "liqo.overlayEnvironment" -}}
- name: LIQO_OVERLAY_PORT
  value: {{ .Values.networking.genevePort | int | quote }}
- name: LIQO_OVERLAY_VNI
  value: {{ .Values.networking.overlay.vni | int | quote }}
- name: LIQO_PROBE_PORT
  value: {{ .Values.networking.overlay.probePort | int | quote }}
- name: LIQO_PROBE_NET
  value: {{ .Values.networking.overlay.probeNet | quote }}
{{- with .Values.networking.tenantNamespaces }}
- name: LIQO_TENANT_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{/*
Returns an environment variable with a field of the pod. Takes a dict: name, path.
*/}}
{{- define "liqo.podField" -}}
- name: {{ .name }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ .path }}
{{- end }}

{{/*
Returns the probes of a container. The kubelet restarts a container whose /healthz fails. A pod whose /readyz
fails is not ready. Takes a dict: port, host (the pod's address if empty).
*/}}
{{- define "liqo.probes" -}}
{{- $host := empty .host | ternary "" (printf ", host: %s" .host) -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ $host }}}
  periodSeconds: 1
  # The limit is one hour. The process may wait for an unreachable API server, and a restart would not help.
  failureThreshold: 3600
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ $host }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ $host }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 3
{{- end }}

{{/*
Returns the resources of a container without empty maps. The API server removes empty maps, so each
`kubectl apply` would report a change.
*/}}
{{- define "liqo.resources" -}}
{{- $given := dict }}
{{- range $kind, $amounts := . }}
{{- if $amounts }}
{{- $_ := set $given $kind $amounts }}
{{- end }}
{{- end }}
{{- toYaml $given }}
{{- end }}

{{/*
Returns classes as the value of a flag. Takes a list of {name, default}.
*/}}
{{- define "liqo.classes" -}}
{{- range $index, $class := . }}{{ if $index }},{{ end }}{{ $class.name }}{{ if $class.default }};default{{ end }}{{ end }}
{{- end }}

{{/*
Returns a text that is not empty if consumers can read the metrics of their pods.
*/}}
{{- define "liqo.hasMetricAgent" -}}
{{- if and .Values.authentication.enabled .Values.metricAgent.enabled }}true{{ end }}
{{- end }}

{{/*
Returns a text that is not empty if virtual nodes have virtual kubelets.
*/}}
{{- define "liqo.hasVirtualKubelets" -}}
{{- if and .Values.authentication.enabled .Values.offloading.enabled .Values.virtualKubelet.image.name }}true{{ end }}
{{- end }}

{{/*
Returns a text if Services are exported to peers and imported from them, which needs the connections of control planes.
*/}}
{{- define "liqo.hasMultiCluster" -}}
{{- if and .Values.multiCluster.enabled .Values.authentication.enabled }}true{{ end }}
{{- end }}
