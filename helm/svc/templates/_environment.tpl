{{/* Environment of a component: variables, and files for secrets. Names are map keys, so each is unique. */}}

{{/* Variables that the chart sets, as JSON: variable -> value. Only those that the component reads (files/variables.json). */}}
{{- define "svc.settings" -}}
{{- $values := .root.Values -}}
{{- $known := index (.root.Files.Get "files/variables.json" | fromJson) .component -}}
{{- $settings := dict
  "SVC_LISTEN" "0.0.0.0:8080"
  "SVC_LISTEN_INTERNAL" "0.0.0.0:8081"
  "SVC_LISTEN_ADMIN" "0.0.0.0:9090"
  "SVC_LOG" $values.log
  "SVC_PUBLIC_URL" $values.publicUrl
  "SVC_STREAM_MODE" $values.nats.stream.mode
  "SVC_STREAM_REPLICAS" (toString $values.nats.stream.replicas)
  "SVC_STREAM_MAX_BYTES" $values.nats.stream.maxBytes
  "SVC_STREAMS" (toString $values.nats.stream.count)
  "SVC_STREAM_MAX_AGE" $values.nats.stream.maxAge
  "SVC_DLQ_MAX_AGE" $values.nats.stream.dlqMaxAge
  "SVC_AUDIT_MAX_AGE" $values.nats.stream.auditMaxAge
  "SVC_STREAM_COMPRESSION" $values.nats.stream.compression
  "SVC_NATS_DURABILITY" $values.nats.stream.durability
-}}
{{- range $name := list "identity" "session" -}}
{{- if index $values $name "enabled" -}}
{{- $_ := set $settings (printf "SVC_%s_URL" (upper $name)) (printf "http://%s-internal:8081" (include "svc.name" (dict "root" $.root "component" $name))) -}}
{{- end -}}
{{- end -}}
{{- if $values.trustedProxies -}}{{- $_ := set $settings "SVC_TRUSTED_PROXIES" (join "," $values.trustedProxies) -}}{{- end -}}
{{- if $values.trustedProxyHops -}}{{- $_ := set $settings "SVC_TRUSTED_PROXY_HOPS" (toString $values.trustedProxyHops) -}}{{- end -}}
{{- with $values.monitoring.traces -}}
{{- if .endpoint -}}{{- $_ := set $settings "SVC_OTLP_ENDPOINT" .endpoint -}}{{- $_ := set $settings "SVC_OTLP_RATIO" (toString .ratio) -}}{{- end -}}
{{- end -}}
{{- if $values.mail.from -}}{{- $_ := set $settings "SVC_MAIL_FROM" $values.mail.from -}}{{- end -}}
{{- if $values.mail.toFiles -}}{{- $_ := set $settings "SVC_MAIL_DIR" "/var/lib/svc/mail" -}}{{- end -}}
{{- with $values.branding -}}
{{- $branding := dict "SVC_PRODUCT_NAME" .productName "SVC_ACCENT_COLOR" .accentColor "SVC_SUPPORT_ADDRESS" .supportAddress "SVC_LANGUAGE" .language -}}
{{- if .logo.configMap -}}{{- $_ := set $branding "SVC_LOGO_FILE" (printf "/etc/svc/branding/%s" .logo.key) -}}{{- end -}}
{{- range $name, $value := $branding -}}{{- if $value -}}{{- $_ := set $settings $name $value -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $read := dict -}}
{{- range $name, $value := $settings -}}
{{- if has $name $known.plain -}}{{- $_ := set $read $name $value -}}{{- end -}}
{{- end -}}
{{- toJson $read -}}
{{- end -}}

{{/* Secrets of the component, as JSON: a list of {variable, secret, key}. */}}
{{- define "svc.secrets" -}}
{{- $values := .root.Values -}}
{{- $known := index (.root.Files.Get "files/variables.json" | fromJson) .component -}}
{{- $tokens := $values.secrets.existingSecret -}}
{{- $all := list
  (dict "variable" "SVC_DATABASE_URL" "secret" $values.database.existingSecret "key" (printf "%s-url" .component))
  (dict "variable" "SVC_NATS_URL" "secret" $values.nats.existingSecret "key" (printf "%s-url" .component))
  (dict "variable" "SVC_SERVICE_TOKEN" "secret" $tokens "key" "service-token")
  (dict "variable" "SVC_PLATFORM_TOKEN" "secret" $tokens "key" "platform-token")
  (dict "variable" "SVC_LIMITER_KEY" "secret" $tokens "key" "limiter-key")
-}}
{{- range $name := $values.secrets.previous -}}
{{- $variable := printf "SVC_%s_PREVIOUS" ($name | upper | replace "-" "_") -}}
{{- $all = append $all (dict "variable" $variable "secret" $tokens "key" (printf "%s-previous" $name)) -}}
{{- end -}}
{{- if $values.mail.existingSecret -}}
{{- $all = append $all (dict "variable" "SVC_SMTP_URL" "secret" $values.mail.existingSecret "key" "smtp-url") -}}
{{- end -}}
{{- $read := list -}}
{{- range $all -}}
{{- if has .variable $known.secret -}}{{- $read = append $read . -}}{{- end -}}
{{- end -}}
{{- toJson $read -}}
{{- end -}}

{{- define "svc.env" -}}
{{- $own := index .root.Values .component -}}
{{- $plain := merge (include "svc.settings" . | fromJson) $own.env -}}
{{- range $name, $value := $plain }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range include "svc.secrets" . | fromJsonArray }}
- name: {{ .variable }}_FILE
  value: /etc/svc/secrets/{{ .secret }}/{{ .key }}
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volume with one file <secret>/<key> for each entry of a list of {secret, key}. */}}
{{- define "svc.secretVolume" -}}
name: secrets
projected:
  defaultMode: 0440
  sources:
    {{- range . }}
    - secret:
        name: {{ .secret }}
        items:
          - key: {{ .key }}
            path: {{ .secret }}/{{ .key }}
    {{- end }}
{{- end -}}
