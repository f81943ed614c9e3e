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

{{/* The [[nodes]] of a node's file: those with which the cluster begins, and the node itself. They do not depend on `replicas`, so
raising it changes no file of an existing node. */}}
{{- define "quorate.nodes" -}}
{{- $full := include "quorate.fullname" .root -}}
{{- $first := int .root.Values.initialReplicas -}}
{{- $indices := until $first -}}
{{- if ge .index $first }}{{ $indices = append $indices .index }}{{ end -}}
{{- range $index := $indices }}
[[nodes]]
id = {{ add1 $index }}
host = "{{ $full }}-{{ $index }}.{{ $full }}-nodes.{{ $.root.Release.Namespace }}.svc.{{ $.root.Values.clusterDomain }}"
client_port = {{ $.root.Values.ports.client }}
http_port = {{ $.root.Values.ports.http }}
peer_port = {{ $.root.Values.ports.peer }}
{{ end }}
{{- end -}}

{{/* A node's configuration. */}}
{{- define "quorate.file" -}}
{{- $full := include "quorate.fullname" .root -}}
{{- $values := .root.Values -}}
{{- $domain := printf "%s.%s" $full .root.Release.Namespace -}}
node = {{ add1 .index }}
cluster = {{ $values.cluster | default $full | toJson }}
secret = {{ $values.auth.secret | toJson }}
password = {{ $values.auth.password | toJson }}
{{- with $values.auth.operatorPassword }}
operator_password = {{ . | toJson }}
{{- end }}
bind = "0.0.0.0"
data = "/data"
http_hosts = ["{{ $full }}", "{{ $domain }}", "{{ $domain }}.svc", "{{ $domain }}.svc.{{ $values.clusterDomain }}"]
{{- with $values.config }}
{{ . }}
{{- end }}

{{- with $values.tables }}
{{ . }}
{{- end }}
{{- if $values.tls.enabled }}

{{ include "quorate.tls" (dict "Values" $values "node" (int (add1 .index))) }}
{{- end }}
{{ include "quorate.nodes" . }}
{{- end -}}

{{/* What a pod's containers see. */}}
{{- define "quorate.mounts" -}}
- { name: data, mountPath: /data }
# The pod's own file, at the place that the image expects, since a probe's command cannot name the pod.
- { name: config, mountPath: /etc/quorate.toml, subPathExpr: $(POD_NAME).toml, readOnly: true }
{{- if .Values.tls.enabled }}
# A whole folder: new certificates appear in it, and the node uses them without a restart.
- { name: tls, mountPath: /etc/quorate-tls, readOnly: true }
{{- end }}
{{- end -}}
