{{/* The Job that migrates the schema of a component. A Job is immutable, so its name contains a digest of its spec, and of the
     revision: each upgrade runs the migrations again, also after a failure with equal values. For tools that render without
     Helm's revision, only a changed spec creates a new Job. It is not a hook: hooks run before the Secrets and policies of a
     first installation, and GitOps tools handle them differently. */}}

{{- define "svc.migration.pod" -}}
{{- $own := index .root.Values .component -}}
{{- $role := printf "%sMigrator" .component -}}
{{- $database := include "svc.database" (dict "root" .root "component" .component "role" $role) | fromJson -}}
metadata:
  {{- include "svc.podMetadata" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 2 }}
spec:
  {{- include "svc.pod.base" (dict "root" .root "serviceAccount" (include "svc.name" .)) | nindent 2 }}
  restartPolicy: Never
  {{- with $own.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: migrate
      image: {{ include "svc.image" . }}
      args: [migrate, up]
      env:
        {{- include "svc.plainEnv" $database.env | trim | nindent 8 }}
        {{- with $own.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      resources:
        {{- toYaml .root.Values.migrations.resources | nindent 8 }}
      {{- include "svc.container.base" . | nindent 6 }}
      volumeMounts:
        {{- include "svc.container.mounts" . | nindent 8 }}
  {{- with $own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - {{ include "svc.secretVolume" $database.files | nindent 6 | trim }}
    {{- with $own.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "svc.migration" -}}
{{- $pod := include "svc.migration.pod" . -}}
{{- $spec := printf "%v %v\n%s" .root.Release.Revision .root.Values.migrations.activeDeadlineSeconds $pod -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "svc.name" . }}-migrate-{{ $spec | sha256sum | trunc 10 }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "svc.labels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
spec:
  activeDeadlineSeconds: {{ .root.Values.migrations.activeDeadlineSeconds }}
  # For failed migrations. `migrate up` itself waits for the database.
  backoffLimit: 8
  podFailurePolicy:
    rules:
      # Exit code 64 is a configuration error. A retry would fail too.
      - action: FailJob
        onExitCodes:
          containerName: migrate
          operator: In
          values: [64]
      # Evicted by the cluster.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    {{- $pod | nindent 4 }}
{{- end -}}
