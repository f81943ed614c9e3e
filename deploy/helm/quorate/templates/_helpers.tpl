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

{{/* Where clients connect. */}}
{{- define "quorate.host" -}}
{{- printf "%s.%s.svc.%s" (include "quorate.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "quorate.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* What all pods may do: nothing but run as this user, and write to their volumes. */}}
{{- define "quorate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "quorate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* A setting of off, wanted or required. YAML takes a bare `off` for false. */}}
{{- define "quorate.tlsWord" -}}
{{- $word := ternary "off" (toString .word) (eq (toString .word) "false") -}}
{{- if not (has $word (list "off" "wanted" "required")) }}{{ fail (printf "tls.%s: off, wanted or required" .name) }}{{ end -}}
{{- $word -}}
{{- end -}}

{{- define "quorate.clientCertificates" -}}
{{- include "quorate.tlsWord" (dict "name" "clientCertificates" "word" .Values.tls.clientCertificates) -}}
{{- end -}}

{{- define "quorate.authorityFile" -}}
{{- ternary "authority.crt" "ca.crt" .Values.tls.perNode -}}
{{- end -}}

{{/* The files of a node's certificate, without .crt and .key. */}}
{{- define "quorate.certificateFile" -}}
{{- ternary (printf "node-%d" .node) "tls" .Values.tls.perNode -}}
{{- end -}}

{{- define "quorate.tls" -}}
{{- $secret := required "tls.existingSecret is needed: a Secret with certificates" .Values.tls.existingSecret -}}
{{- $name := include "quorate.certificateFile" . -}}
[tls]
client_port = {{ .Values.ports.client }}
http_port = {{ .Values.ports.http }}
certificate = "/etc/quorate-tls/{{ $name }}.crt"
key = "/etc/quorate-tls/{{ $name }}.key"
authority = "/etc/quorate-tls/{{ include "quorate.authorityFile" . }}"
client_certificates = "{{ include "quorate.clientCertificates" . }}"
peers = "{{ include "quorate.tlsWord" (dict "name" "peers" "word" .Values.tls.peers) }}"
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
