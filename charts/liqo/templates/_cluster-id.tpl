{{/*
The cluster's ID. It never changes: a release that would change it is refused, and nothing is
random, so that rendering twice is the same.
*/}}
{{- define "liqo.clusterID" -}}
{{- $given := .Values.discovery.config.clusterID -}}
{{- $existing := lookup "v1" "ConfigMap" .Release.Namespace "liqo-clusterid-configmap" -}}
{{- $present := dig "data" "CLUSTER_ID" "" ($existing | default dict) -}}
{{- $system := lookup "v1" "Namespace" "" "kube-system" -}}
{{- if and $given $present (ne $given $present) -}}
  {{- fail (printf "discovery.config.clusterID: this cluster is %q since it was installed, and cannot become %q: leave the value empty, or uninstall first" $present $given) -}}
{{- else if $present -}}
  {{- $present -}}
{{- else if $given -}}
  {{- $given -}}
{{- else if $system -}}
  {{- $system.metadata.uid -}}
{{- else -}}
  {{- fail "discovery.config.clusterID: give the cluster a name, such as rome. It is empty, and this rendering cannot ask the cluster which one it has (helm template, Argo CD, --dry-run=client)" -}}
{{- end -}}
{{- end }}
