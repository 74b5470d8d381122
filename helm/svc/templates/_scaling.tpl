{{/* Autoscaling and disruption budget of a component. */}}

{{- define "svc.horizontalPodAutoscaler" -}}
{{- $own := index .root.Values .component -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "svc.name" . }}
  minReplicas: {{ $own.autoscaling.minReplicas | toJson }}
  maxReplicas: {{ $own.autoscaling.maxReplicas | toJson }}
  metrics:
    # Other containers of the pod can have no request.
    - type: ContainerResource
      containerResource:
        name: cpu
        container: {{ .component }}
        target:
          type: Utilization
          averageUtilization: {{ $own.autoscaling.targetCPU | toJson }}
{{- end -}}

{{/* Connections to Postgres of all pods and migrations, with the additional pod of each Deployment during an upgrade; empty without
     a database. */}}
{{- define "svc.connections" -}}
{{- $sum := 0 -}}
{{- range $component := list "identity" "session" -}}
{{- if include "svc.installed" (dict "root" $ "component" $component) -}}
{{- $own := index $.Values $component -}}
{{- $pods := ternary $own.autoscaling.maxReplicas (include "svc.replicas" (dict "root" $ "component" $component) | int) $own.autoscaling.enabled -}}
{{- $sum = add $sum (mul (add1 $pods) $.Values.database.connections) 1 -}}
{{- end -}}
{{- end -}}
{{- if $sum -}}{{ $sum }}{{- end -}}
{{- end -}}

{{- define "svc.podDisruptionBudget" -}}
{{- $own := index .root.Values .component -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ $own.podDisruptionBudget.maxUnavailable | toJson }}
  # Otherwise a pod that is never ready would block the drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "svc.selector" . | nindent 6 }}
{{- end -}}
