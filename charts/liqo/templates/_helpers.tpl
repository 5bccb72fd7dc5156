{{/*
Labels of the pods of a component, for selectors. They never change: selectors are immutable.
Takes a dict: name, component.
*/}}
{{- define "liqo.selectorLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: liqo-{{ .name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: liqo
{{- end }}

{{/*
Labels of each object. Pods omit the version labels, so that a release that does not change a pod does
not restart it.
Takes a dict: root, name, component.
*/}}
{{- define "liqo.labels" -}}
{{ include "liqo.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{/*
Full reference of an image. Takes a dict: root, image.
*/}}
{{- define "liqo.image" -}}
{{- if hasPrefix "ghcr.io/liqotech/" .image.name }}
  {{- fail (printf "%s: an image of upstream's programs, whose arguments differ from this project's: omit the name, or give a copy of this project's image" .image.name) }}
{{- end -}}
{{ .image.name }}:{{ .image.version | default .root.Values.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/*
A CIDR as part of an object's name: 10.0.0.0/16 becomes 10-0-0-0-16.
*/}}
{{- define "liqo.escapedCIDR" -}}
{{ . | replace "." "-" | replace ":" "-" | replace "/" "-" }}
{{- end }}

{{/*
Annotations for a Prometheus that discovers targets by annotation. Takes a dict: root, port.
*/}}
{{- define "liqo.scrapeAnnotations" -}}
{{- if and .root.Values.metrics.enabled (not .root.Values.metrics.prometheusOperator.enabled) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/*
Settings that gateways and route agents must share, as environment variables.
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
A field of the pod as an environment variable. Takes a dict: name, path.
*/}}
{{- define "liqo.podField" -}}
- name: {{ .name }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ .path }}
{{- end }}

{{/*
Probes of a process: a failing /healthz restarts it, a failing /readyz takes it out of service.
Takes a dict: port, host (the pod's address if empty).
*/}}
{{- define "liqo.probes" -}}
{{- $host := empty .host | ternary "" (printf ", host: %s" .host) -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ $host }}}
  periodSeconds: 1
  # One hour: the process may wait for an unreachable API server, which a restart does not bring back.
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
Resources of a container without empty maps: the API server drops these, so that each `kubectl apply` would
report a change.
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
