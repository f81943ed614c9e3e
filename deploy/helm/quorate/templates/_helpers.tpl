{{- define "quorate.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "quorate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quorate.labels" -}}
{{ include "quorate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "quorate.secretName" -}}
{{- .Values.auth.existingSecret | default (include "quorate.fullname" .) -}}
{{- end -}}

{{/* The [[nodes]] of a new cluster, the same in all files. */}}
{{- define "quorate.nodes" -}}
{{- $full := include "quorate.fullname" . -}}
{{- range $index := until (int .Values.replicas) }}
[[nodes]]
id = {{ add1 $index }}
host = "{{ $full }}-{{ $index }}.{{ $full }}-nodes.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}"
client_port = {{ $.Values.ports.client }}
http_port = {{ $.Values.ports.http }}
peer_port = {{ $.Values.ports.peer }}
{{ end }}
{{- end -}}
