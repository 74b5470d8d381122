{{/* The Deployment of a component. */}}
{{- define "svc.deployment" -}}
{{- $own := index .root.Values .component -}}
{{- $database := include "svc.database" (dict "root" .root "component" .component "role" .component) | fromJson -}}
{{- $nats := include "svc.nats" . | fromJson -}}
{{- $files := concat (include "svc.secrets" . | fromJsonArray) $database.files $nats.files -}}
{{- $hasDatabase := ne .component "ingest" -}}
{{- $logo := ternary .root.Values.branding.logo.configMap "" (eq .component "identity") -}}
{{- $mails := and .root.Values.mail.toFiles (eq .component "identity") -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  {{- if not $own.autoscaling.enabled }}
  replicas: {{ include "svc.replicas" . }}
  {{- end }}
  revisionHistoryLimit: 3
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  selector:
    matchLabels:
      {{- include "svc.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "svc.podMetadata" (merge (dict "annotations" (dict "kubectl.kubernetes.io/default-container" .component)) .) | nindent 6 }}
    spec:
      {{- include "svc.pod.base" (dict "root" .root "own" $own "serviceAccount" (include "svc.name" .)) | nindent 6 }}
      terminationGracePeriodSeconds: {{ $own.lifecycle.terminationGracePeriodSeconds | toJson }}
      {{- if or $hasDatabase $own.extraInitContainers }}
      initContainers:
        {{- with $own.extraInitContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $hasDatabase }}
        - name: wait-for-migrations
          image: {{ include "svc.image" . | quote }}
          args: [migrate, wait]
          env:
            {{- include "svc.plainEnv" $database.env | trim | nindent 12 }}
            {{- with $own.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          volumeMounts:
            {{- include "svc.container.mounts" . | nindent 12 }}
          resources:
            {{- toYaml .root.Values.migrations.resources | nindent 12 }}
          {{- include "svc.container.base" . | nindent 10 }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "svc.image" . | quote }}
          env:
            {{- include "svc.env" . | trim | nindent 12 }}
            {{- include "svc.plainEnv" (merge $nats.env $database.env) | nindent 12 }}
          ports:
            - name: public
              containerPort: 8080
            {{- if include "svc.internalCallers" . | fromJsonArray }}
            - name: internal
              containerPort: 8081
            {{- end }}
            - name: admin
              containerPort: 9090
          {{- include "svc.probes" . | nindent 10 }}
          {{- with $own.lifecycle.preStopSeconds }}
          lifecycle:
            preStop:
              sleep:
                seconds: {{ . | toJson }}
          {{- end }}
          resources:
            {{- toYaml $own.resources | nindent 12 }}
          {{- include "svc.container.base" . | nindent 10 }}
          volumeMounts:
            {{- include "svc.container.mounts" . | nindent 12 }}
            {{- if $logo }}
            - name: branding
              mountPath: /etc/svc/branding
              readOnly: true
            {{- end }}
            {{- if $mails }}
            - name: mail
              mountPath: /var/lib/svc/mail
            {{- end }}
            {{- if include "svc.reviewsTokens" . }}
            - {{ include "svc.kubernetesApi.mount" . | nindent 14 | trim }}
            {{- end }}
        {{- with $own.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- include "svc.pod.spread" . | nindent 6 }}
      volumes:
        - {{ include "svc.secretVolume" $files | nindent 10 | trim }}
        {{- if $logo }}
        - name: branding
          configMap:
            name: {{ $logo | quote }}
        {{- end }}
        {{- if $mails }}
        - name: mail
          emptyDir:
            sizeLimit: 64Mi
        {{- end }}
        {{- if include "svc.reviewsTokens" . }}
        - {{ include "svc.kubernetesApi.volume" . | nindent 10 | trim }}
        {{- end }}
        {{- with $own.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
